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
    """The nearest vector of non-negative numbers that add up to one, by sorting (Duchi et al., 2008, https://doi.org/10.1145/1390156.1390191).

    The nearest vector is ``max(values - t, 0)`` for one threshold t. Its positive entries are the largest of `values`,
    so t follows from how many there are, and the largest number for which all of them stay positive is the right one.

    Args:
        values: shape (n,), floating point.

    Returns:
        Shape (n,), of the same type.

    Example:
        >>> import torch
        >>> [round(value, 6) for value in project_to_simplex(torch.tensor([0.6, 0.5, 0.2])).tolist()]
        [0.5, 0.4, 0.1]
    """
    descending = values.sort(descending=True).values
    thresholds = (descending.cumsum(0) - 1) / torch.arange(1, len(values) + 1, dtype=values.dtype, device=values.device)
    last = int((descending > thresholds).nonzero().max())
    return (values - thresholds[last]).clamp(min=0)
