"""The convex combination of points that is nearest to a goal: the inner problem of the Convex Polytope attack."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.primitives.projections import project_to_simplex


def nearest_combination(
    points: Tensor, goal: Tensor, start: Tensor | None = None, *, steps: int = 100, tolerance: float = 1e-6
) -> Tensor:
    """Coefficients on the simplex whose combination of points is nearest to the goal.

    Forward-backward splitting of ||c A - t||^2 / 2: a gradient step of size 2 / Lipschitz, halved while it doesn't
    lower the distance, then the projection.

    Args:
        points: A, shape (p, d).
        goal: t, shape (d,).
        start: where to begin, shape (p,); the mean by default. The last solution is a good one.
        steps: at most.
        tolerance: stop when coefficients move by less, relative to their size.

    Returns:
        Shape (p,), without a gradient.
    """
    points, goal = points.detach(), goal.detach()
    coefficients = torch.full_like(points[:, 0], 1 / len(points)) if start is None else start
    gram, pull = points @ points.T, points @ goal
    size = 2 / torch.linalg.matrix_norm(gram, 2).clamp(min=torch.finfo(gram.dtype).tiny)

    def distance(weights: Tensor) -> Tensor:
        return (goal - weights @ points).square().sum()

    now = distance(coefficients)
    for _ in range(steps):
        moved = project_to_simplex(coefficients - size * (gram @ coefficients - pull))
        there = distance(moved)
        converged = torch.linalg.vector_norm(moved - coefficients) <= tolerance * torch.linalg.vector_norm(coefficients)
        if there <= now:
            coefficients, now = moved, there
        else:
            size = size / 2
        if converged:
            break
    return coefficients
