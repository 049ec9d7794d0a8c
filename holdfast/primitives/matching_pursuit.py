"""Positive orthogonal matching pursuit: few vectors whose nonnegative combination comes near a target.

min over w >= 0 with at most k entries of ||sum_j w_j g_j - b||^2 + ridge ||w||^2, greedily: take the vector that the
residual points to most, fit all weights of the chosen ones again, and let go of those that would be negative
(Killamsetty et al., "GradMatch", ICML 2021, https://arxiv.org/abs/2103.00123). Letting go follows Lawson and Hanson
(1974): from the weights so far one goes towards the new ones until the first is 0, so the objective never increases,
and without a limit on k the result is the nonnegative least-squares solution itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError

_ZERO = 1e-12  # of the largest product of a vector and the target: less is rounding


@dataclass(frozen=True, eq=False)
class SparseCombination:
    """A nonnegative combination of few vectors.

    Attributes:
        chosen: which vectors, int64 of shape (c,), in the order of their choice; c may be less than was allowed.
        weights: of those, float64 of shape (c,), positive.
        objectives: ||residual||^2 + ridge ||w||^2 at the start and after each choice, float64, never increasing.
    """

    chosen: Tensor
    weights: Tensor
    objectives: Tensor


def positive_matching_pursuit(
    vectors: Tensor, target: Tensor, k: int, *, ridge: float = 0.0, tolerance: float = 0.0
) -> SparseCombination:
    """Choose at most k of the vectors and weigh them so that their sum is near the target.

    Args:
        vectors: float of shape (n, d).
        target: float of shape (d,).
        k: how many at most.
        ridge: weight of ||w||^2.
        tolerance: stop once ||residual|| / ||target|| is below.

    Returns:
        The combination. It has fewer than k vectors where no further one points along the residual.

    Raises:
        ConfigError: if k or ridge makes no sense.
        DataError: if shapes disagree or a number isn't finite.

    Example:
        >>> import torch
        >>> found = positive_matching_pursuit(torch.eye(3), torch.tensor([2.0, 0.0, 5.0]), 2)
        >>> found.chosen.tolist(), found.weights.tolist()
        ([2, 0], [5.0, 2.0])
    """
    if k < 1 or not ridge >= 0:
        raise ConfigError(f"k is {k} and ridge {ridge}; give at least 1 and at least 0")
    if vectors.ndim != 2 or target.shape != vectors.shape[1:]:
        raise DataError(
            f"vectors of shape {tuple(vectors.shape)} can't add up to a target of shape {tuple(target.shape)}; give "
            "(n, d) and (d,)"
        )
    g, b = vectors.to(torch.float64), target.to(torch.float64)
    if not bool(torch.isfinite(g).all()) or not bool(torch.isfinite(b).all()):
        raise DataError("some vectors or the target are not finite; leave them out")
    chosen = torch.empty(0, dtype=torch.int64)
    weights = torch.empty(0, dtype=torch.float64)
    residual, least = b, _ZERO * float((g @ b).abs().max()) if len(g) else 0.0
    objectives = [float(b @ b)]
    # A choice may push others out, so choices are counted: it ends even where rounding lets some come and go.
    for _ in range(min(3 * k, 3 * len(g))):
        if len(chosen) >= k or float(residual.norm()) <= tolerance * float(b.norm()):
            break
        match = g @ residual
        match[chosen] = -torch.inf
        best = int(match.argmax())
        if not float(match[best]) > least:
            break
        chosen = torch.cat([chosen, torch.tensor([best])])
        chosen, weights = _refit(g, b, ridge, chosen, torch.cat([weights, torch.zeros(1, dtype=torch.float64)]))
        if best not in chosen:
            break
        residual = b - weights @ g[chosen]
        objectives.append(float(residual @ residual + ridge * (weights @ weights)))
    return SparseCombination(chosen, weights, torch.tensor(objectives, dtype=torch.float64))


def _refit(g: Tensor, b: Tensor, ridge: float, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The best positive weights of the chosen vectors, reached from nonnegative ones; the rest is let go."""
    while True:
        fitted = _least_squares(g[chosen], b, ridge)
        low = fitted <= 0
        if not bool(low.any()):
            return chosen, fitted
        steps = torch.where(low, weights / (weights - fitted).clamp_min(torch.finfo(torch.float64).tiny), torch.inf)
        step = float(steps.min())
        weights = weights + step * (fitted - weights)
        remaining = ~(low & (steps <= step))
        chosen, weights = chosen[remaining], weights[remaining].clamp_min(0)


def _least_squares(g: Tensor, b: Tensor, ridge: float) -> Tensor:
    """(G G' + ridge I)^-1 G b, by whichever of G G' and G' G is smaller: G (G' G + ridge I)^-1 b is the same."""
    size, d = g.shape
    solution: Tensor
    if ridge == 0:
        solution = torch.linalg.lstsq(g.T, b[:, None], driver="gelsd").solution[:, 0]
    elif size <= d:
        solution = torch.linalg.solve(g @ g.T + ridge * torch.eye(size, dtype=g.dtype), g @ b)
    else:
        solution = g @ torch.linalg.solve(g.T @ g + ridge * torch.eye(d, dtype=g.dtype), b)
    return solution
