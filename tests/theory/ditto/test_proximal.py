import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.theory.ditto import proximal_minimum


@pytest.fixture
def loss():
    """Logistic regression of a client, with a little ridge, so that it is strongly convex."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    signs = torch.randn(40, generator=generator, dtype=torch.float64).sign()
    return lambda v: torch.nn.functional.softplus(-signs * (inputs @ v)).mean() + 0.01 * v.square().sum()


def test_training_loss_rises_and_the_distance_falls_with_lambda(loss):
    """Lemma 1."""
    anchor = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    lambdas = [0.0, *(10.0**power for power in range(-2, 3)), 1e6]
    points = [proximal_minimum(loss, anchor, lambda_) for lambda_ in lambdas]
    losses = torch.stack([loss(point) for point in points])
    distances = torch.stack([(point - anchor).norm() for point in points])
    assert (losses.diff() > 0).all()
    assert (distances.diff() < 0).all()
    assert distances[-1] < 1e-6


def test_it_is_where_the_gradient_vanishes(loss):
    anchor = torch.full((4,), 30.0, dtype=torch.float64)  # far out, where full steps of Newton's method overshoot
    found = proximal_minimum(loss, anchor, 0.0)
    assert torch.autograd.functional.jacobian(loss, found).abs().max() < 1e-12
    other = proximal_minimum(loss, -anchor, 0.0)
    torch.testing.assert_close(found, other, atol=1e-9, rtol=0)


def test_a_loss_without_a_minimum_is_refused():
    with pytest.raises(ConfigError, match="no minimum"):
        proximal_minimum(lambda v: v.exp().sum(), torch.zeros(2, dtype=torch.float64), 0.0, tolerance=0.0)
