"""The nearest point of a set: of a ball around each example's own centre, and of the simplex.

A point of the set is its own projection, to the bit: who is within the budget is not moved.
"""

from __future__ import annotations

import torch
from torch import Tensor


def project_to_ball(points: Tensor, radius: float, centres: Tensor | float = 0.0) -> Tensor:
    """The nearest points of Euclidean balls.

    Args:
        points: shape (n, ...); the norm is taken over everything but the first dimension.
        radius: of every ball.
        centres: shape of `points`, or one number for all entries.

    Returns:
        Shape of `points`.
    """
    away = points - centres
    norms = norms_of(away)
    return torch.where(norms > radius, centres + away * (radius / norms), points)


def norms_of(points: Tensor) -> Tensor:
    """Euclidean norm of each example of `points`, shape (n, ...), broadcast over its entries: (n, 1, ...)."""
    norms: Tensor = torch.linalg.vector_norm(points.flatten(1), dim=1)
    return norms.view(-1, *[1] * (points.ndim - 1))


def project_to_simplex(values: Tensor) -> Tensor:
    """The nearest vector of non-negative numbers that add up to one, by sorting (Duchi et al. 2008).

    Args:
        values: shape (p,).

    Returns:
        Shape (p,).

    Example:
        >>> import torch
        >>> [round(value, 6) for value in project_to_simplex(torch.tensor([0.6, 0.5, 0.2]).double()).tolist()]
        [0.5, 0.4, 0.1]
    """
    descending = values.sort(descending=True).values
    excess = (descending.cumsum(0) - 1) / torch.arange(1, len(values) + 1, dtype=values.dtype, device=values.device)
    last = int((descending > excess).nonzero().max())
    return (values - excess[last]).clamp(min=0)
