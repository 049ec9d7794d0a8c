"""Ditto's personal problem solved to machine precision, for any smooth convex loss.

What Algorithm 1 asks for is argmin F_k(v) + (λ/2)‖v − w*‖². Lemma 1 compares these minimisers over λ: the training loss
never falls as λ grows, so whatever personalization gains with λ > 0 is gained on new data.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from holdfast.errors import ConfigError

_STEPS = 100


def proximal_minimum(
    loss: Callable[[torch.Tensor], torch.Tensor], anchor: torch.Tensor, lambda_: float, *, tolerance: float = 1e-12
) -> torch.Tensor:
    """The argmin of F(v) + (λ/2)‖v − w*‖², by Newton's method with halved steps.

    Args:
        loss: F, twice differentiable, of a vector in float64; with λ = 0 it must be strictly convex.
        anchor: w*, shape (parameters,), float64.
        lambda_: λ, finite and at least 0.
        tolerance: largest entry of the gradient at the answer, relative to the larger of 1 and λ.

    Returns:
        The minimiser, shape (parameters,).

    Raises:
        ConfigError: if it isn't found, which a loss with a minimum doesn't do.
    """

    def objective(v: torch.Tensor) -> torch.Tensor:
        return loss(v) + lambda_ / 2 * (v - anchor).square().sum()

    point = anchor.clone()
    for _ in range(_STEPS):
        slope, curvature = _derivatives(objective, point)
        if slope.abs().max() <= tolerance * max(1.0, lambda_):
            return point
        step = torch.linalg.solve(curvature, slope)
        before, size = objective(point), 1.0
        while size > 1e-10 and objective(point - size * step) > before - 1e-4 * size * (slope @ step) + 1e-15:
            size /= 2
        point = point - size * step
    raise ConfigError(f"no minimum was found in {_STEPS} steps of Newton's method; give a loss that has one")


def _derivatives(
    function: Callable[[torch.Tensor], torch.Tensor], point: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient and Hessian."""
    at = point.detach().requires_grad_()
    (slope,) = torch.autograd.grad(function(at), at, create_graph=True)
    rows = [torch.autograd.grad(entry, at, retain_graph=True)[0] for entry in slope]
    return slope.detach(), torch.stack(rows)
