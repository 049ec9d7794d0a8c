import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.primitives.pgd import Pgd


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3), nn.Dropout(0.5)
    )


def images(n: int = 20) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, 1, 8, 8, generator=generator), torch.randint(0, 3, (n,), generator=generator)


class Logistic(nn.Module):
    """Logits 0 and w.x, so that cross-entropy is the logistic loss."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))

    def forward(self, inputs: Tensor) -> Tensor:
        return F.pad((inputs @ self.weights)[:, None], (1, 0))


@pytest.mark.parametrize("norm", ["inf", "2"])
@pytest.mark.parametrize("epsilon", [0.03, 0.5])
def test_perturbations_stay_in_the_ball_and_in_the_picture_and_raise_the_loss(norm, epsilon):
    model, (x, y) = network(), images()
    moved = Pgd(epsilon, norm=norm)(model, x, y)
    away = (moved - x).flatten(1)
    size = away.abs().max(1).values if norm == "inf" else away.norm(dim=1)
    assert size.max() <= epsilon * (1 + 1e-5)
    assert moved.min() >= 0 and moved.max() <= 1
    model.eval()
    before, after = (F.cross_entropy(model(at), y, reduction="none") for at in (x, moved))
    assert (after >= before).float().mean() >= 0.99
    assert torch.equal(moved, Pgd(epsilon, norm=norm)(model, x, y))


def test_no_budget_returns_the_inputs_to_the_bit():
    x, y = images()
    assert torch.equal(Pgd(0.0)(network(), x, y), x)


def test_one_full_step_is_the_fast_gradient_sign():
    model, (x, y) = network().eval(), images()
    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(at), y), at)
    wanted = (x + 0.1 * gradient.sign()).clamp(0, 1)
    torch.testing.assert_close(Pgd(0.1, steps=1, step_size=0.1)(model, x, y), wanted)


def test_the_model_is_left_as_it_was_even_when_the_attack_fails():
    model, (x, y) = network().train(), images()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    Pgd()(model, x, y)
    with pytest.raises(FloatingPointError, match="not finite"):
        Pgd()(model, torch.full_like(x, 0.5), y, loss=lambda outputs, labels: (outputs * torch.inf).sum(1))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [module.training for module in model] == [True, False, True, True, True, True]
    assert not model[0].weight.requires_grad and model[4].weight.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_for_a_linear_model_the_perturbation_is_known(steps):
    """-(2y - 1) epsilon sign(w) once the steps reach the border, and features without weight are never moved."""
    x, y = torch.randn(30, 3), torch.arange(30) % 2
    attack = Pgd(0.3, steps=steps, step_size=0.3, bounds=None)
    moved = attack(Logistic([2.0, 0.0, -0.5]), x, y)
    wanted = -(2 * y[:, None] - 1) * 0.3 * torch.tensor([1.0, 0.0, -1.0])
    torch.testing.assert_close(moved - x, wanted, rtol=0, atol=1e-6)
    assert torch.equal(moved[:, 1], x[:, 1])


def test_the_euclidean_attack_on_a_linear_model_follows_its_weights():
    x, y = torch.randn(30, 3, dtype=torch.float64), torch.arange(30) % 2
    model = Logistic([3.0, 0.0, -4.0]).double()
    moved = Pgd(0.5, steps=1, step_size=0.5, norm="2", bounds=None)(model, x, y)
    wanted = -(2 * y[:, None] - 1) * 0.5 * torch.tensor([0.6, 0.0, -0.8], dtype=torch.float64)
    torch.testing.assert_close(moved - x, wanted)


def test_a_zero_gradient_moves_nothing():
    x, y = torch.rand(4, 2), torch.tensor([0, 1, 0, 1])
    for norm in ("inf", "2"):
        assert torch.equal(Pgd(0.3, norm=norm)(Logistic([0.0, 0.0]), x, y), x)


def test_many_examples_are_attacked_in_blocks_with_the_same_result(monkeypatch):
    model, (x, y) = network(), images()
    whole = Pgd()(model, x, y)
    monkeypatch.setattr("holdfast.primitives.pgd._BLOCK", 7)
    torch.testing.assert_close(Pgd()(model, x, y), whole)
    assert Pgd()(model, x[:0], y[:0]).shape == (0, 1, 8, 8)


def test_what_cannot_work_is_refused():
    for options in ({"epsilon": -0.1}, {"epsilon": float("nan")}, {"steps": 0}, {"step_size": 0.0}):
        with pytest.raises(ConfigError):
            Pgd(**options)
    x, y = images()
    with pytest.raises(ConfigError, match="normalisation into the model"):
        Pgd()(network(), 2 * x - 1, y)


def test_another_budget_scales_the_steps():
    assert Pgd(0.2, step_size=0.1).within(0.1) == Pgd(0.1, step_size=0.05)
    assert Pgd(0.2).within(0.1) == Pgd(0.1)
