import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import ConfigError
from holdfast.models import CubicCNN, build, find_head

FORMS = pytest.mark.parametrize("form", [CubicCNN.released, CubicCNN.pure])


def patches(n: int = 64, dimension: int = 50) -> torch.Tensor:
    return torch.randn(n, 3, dimension, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@FORMS
def test_score_is_the_sum_over_filters_and_patches_of_the_cubed_response(form):
    model, x = form(50).double(), patches(4)
    weight, bias = model.filters.weight, model.filters.bias
    for i in range(4):
        expected = 0.0
        for j in range(40):
            for p in range(3):
                response = weight[j] @ x[i, p] + (0 if bias is None else bias[j])
                expected = expected + model.signs[j] * response**3
        torch.testing.assert_close(model.score(x)[i], expected)


@FORMS
def test_cross_entropy_on_the_logits_is_the_logistic_loss_of_their_difference(form):
    model, x = form(50).double(), patches() * 3
    target = (x[:, 0, 0] > 0).long()
    logits = model(x)
    torch.testing.assert_close(logits[:, 1] - logits[:, 0], model.score(x))
    logistic = F.softplus(-(2 * target - 1) * model.score(x)).mean()
    torch.testing.assert_close(F.cross_entropy(logits, target), logistic)


@FORMS
def test_permuting_patches_leaves_the_score_unchanged(form):
    model, x = form(50).double(), patches()
    torch.testing.assert_close(model.score(x[:, [2, 0, 1]]), model.score(x))


def test_released_and_pure_have_their_signs_bias_and_start():
    released, pure = build("cubic", (3, 50), 2, seed=3), build("cubic-pure", (3, 50), 2, seed=3)
    assert isinstance(released, CubicCNN)
    assert isinstance(pure, CubicCNN)
    assert released.signs.tolist() == [-1.0] * 20 + [1.0] * 20
    assert pure.signs.tolist() == [1.0] * 40
    assert pure.filters.bias is None
    bound = 50**-0.5
    assert 0.9 * bound < pure.filters.weight.abs().max() <= bound
    torch.testing.assert_close(released.filters.weight, 0.1 * pure.filters.weight)
    assert released.filters.bias.abs().max() <= 0.1 * bound


def test_only_the_filters_learn():
    model = CubicCNN.released(50)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {"filters.weight", "filters.bias"}
    assert find_head(model) == ("head", model.head)


def test_gradient_of_the_pure_form_is_the_theorys():
    """PDE's oracle 6.1: the gradient splits into core, spurious and noise parts."""
    generator = torch.Generator().manual_seed(0)
    n, d, beta_c, beta_s = 200, 50, 0.2, 1.0
    directions = torch.linalg.qr(torch.randn(d, 2, generator=generator, dtype=torch.float64))[0]
    v_c, v_s = directions[:, 0], directions[:, 1]
    y = torch.randint(0, 2, (n,), generator=generator) * 2.0 - 1
    a = torch.where(torch.rand(n, generator=generator) < 0.9, y, -y).double()
    y = y.double()
    noise = torch.randn(n, d, generator=generator, dtype=torch.float64) / 8
    x = torch.stack([beta_c * y[:, None] * v_c, beta_s * a[:, None] * v_s, noise], dim=1)
    model = CubicCNN.pure(d).double()
    F.cross_entropy(model(x), (y > 0).long()).backward()
    with torch.no_grad():
        w = model.filters.weight
        weight = torch.sigmoid(-y * model.score(x))
        core = beta_c**3 * (w @ v_c)[:, None] ** 2 * weight.sum() * v_c
        spurious = beta_s**3 * (w @ v_s)[:, None] ** 2 * (weight * y * a).sum() * v_s
        rest = torch.einsum("n,jn,nd->jd", weight * y, (w @ noise.T) ** 2, noise)
        expected = -3 / n * (core + spurious + rest)
    torch.testing.assert_close(model.filters.weight.grad, expected, rtol=1e-9, atol=1e-14)


def test_an_odd_number_of_filters_cannot_be_split_between_two_logits():
    with pytest.raises(ConfigError, match="41 is odd"):
        CubicCNN(5, 41, signed=True)


def test_more_than_two_classes_are_refused():
    with pytest.raises(ConfigError, match="asked for 3"):
        build("cubic", (3, 50), 3)
