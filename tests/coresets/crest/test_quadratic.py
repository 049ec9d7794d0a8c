import pytest
import torch

from holdfast.coresets.crest.quadratic import QuadraticModel


def quadratic(seed=0, d=12):
    generator = torch.Generator().manual_seed(seed)
    h = torch.rand(d, generator=generator, dtype=torch.float64) + 0.1
    b = torch.randn(d, generator=generator, dtype=torch.float64)
    return h, b, lambda w: float(5 + b @ w + 0.5 * (h * w) @ w)


def test_it_is_exact_for_a_separable_quadratic():
    h, b, loss = quadratic()
    anchor = torch.randn(12, dtype=torch.float64)
    model = QuadraticModel(memory=None)
    model.begin(anchor, loss(anchor))
    model.add(b + h * anchor, h)
    for _ in range(100):
        there = anchor + torch.randn(12, dtype=torch.float64)
        assert model.error(there, loss(there)) * abs(loss(there)) < 1e-6


def test_without_curvature_it_is_off_by_the_second_order_term():
    h, b, loss = quadratic()
    model = QuadraticModel(order=1, memory=None)
    model.begin(torch.zeros(12, dtype=torch.float64), loss(torch.zeros(12, dtype=torch.float64)))
    model.add(b, torch.zeros(12, dtype=torch.float64))
    there = torch.randn(12, dtype=torch.float64)
    assert loss(there) - model.predict(there) == pytest.approx(0.5 * float((h * there) @ there))
    assert model.curvature_norm == 0


def test_a_region_averages_its_mini_batches():
    model = QuadraticModel(memory=None)
    model.begin(torch.zeros(2), 1.0)
    model.add(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]))
    model.add(torch.tensor([3.0, 0.0]), torch.tensor([-4.0, 0.0]))
    assert model.predict(torch.tensor([1.0, 0.0])) == pytest.approx(1 + 2 + 0.5 * -1)
    assert model.curvature_norm == pytest.approx(3)


def test_averages_go_on_from_region_to_region():
    model = QuadraticModel()
    model.begin(torch.zeros(1), 0.0)
    model.add(torch.tensor([1.0]), torch.tensor([1.0]))
    assert model.predict(torch.tensor([1.0])) == pytest.approx(1.5)
    model.begin(torch.zeros(1), 0.0)
    model.add(torch.tensor([0.0]), torch.tensor([0.0]))
    gradient, curvature = 0.1 * 0.9 / (1 - 0.9**2), (0.001 * 0.999 / (1 - 0.999**2)) ** 0.5
    assert model.predict(torch.tensor([1.0])) == pytest.approx(gradient + 0.5 * curvature)


def test_the_error_is_relative_to_the_loss():
    model = QuadraticModel(memory=None)
    model.begin(torch.zeros(1), 2.0)
    model.add(torch.tensor([1.0]), torch.tensor([0.0]))
    assert model.error(torch.tensor([1.0]), 4.0) == pytest.approx(0.25)
    assert model.error(torch.tensor([2.0]), 4.0) == 0


def test_it_survives_a_checkpoint():
    model, again = QuadraticModel(), QuadraticModel()
    model.begin(torch.zeros(3), 1.0)
    for seed in range(3):
        torch.manual_seed(seed)
        model.add(torch.randn(3), torch.randn(3))
    again.load_state_dict(model.state_dict())
    there = torch.randn(3)
    assert again.predict(there) == model.predict(there)
    assert again.curvature_norm == model.curvature_norm
