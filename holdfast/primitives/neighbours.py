"""The nearest neighbours of every point among the others, exactly, in memory that does not grow with the square.

Points are compared block by block with all points, by a matrix product; the distances of those that were found are then
computed again from their differences, so that copies of a point are at distance 0 and not at what rounding left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import DataError

_HELD = 2**23  # distances held at once: 32 MB


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest of every point, nearest first.

    Attributes:
        positions: int64 of shape (n, k).
        distances: squared Euclidean, float32 of shape (n, k).
    """

    positions: Tensor
    distances: Tensor


def nearest_neighbours(points: Tensor, k: int) -> Neighbours:
    """The `k` nearest others of each point by Euclidean distance; fewer where there are fewer others.

    Args:
        points: float of shape (n, d), finite, n at least 2.
        k: how many.

    Returns:
        The neighbours.

    Raises:
        DataError: if there are fewer than two points.

    Example:
        >>> import torch
        >>> found = nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0]]), 1)
        >>> found.positions.flatten().tolist(), found.distances.flatten().tolist()
        ([1, 0, 1], [1.0, 1.0, 4.0])
    """
    n = len(points)
    if n < 2:
        raise DataError(f"there are {n} points and neighbours need at least 2; give more examples")
    k = min(k, n - 1)
    points = points.to(torch.float32)
    centred = points - points.mean(0)
    squares = centred.square().sum(1)
    rows = max(1, _HELD // n)
    positions, distances = [], []
    for start in range(0, n, rows):
        block = centred[start : start + rows]
        apart = torch.addmm(squares[None, :].expand(len(block), n), block, centred.T, alpha=-2)
        own = torch.arange(len(block))
        apart[own, start + own] = torch.inf
        found = apart.topk(k, dim=1, largest=False).indices
        exact = torch.stack([(block - centred[found[:, place]]).square().sum(1) for place in range(k)], dim=1)
        exact, order = exact.sort(dim=1, stable=True)
        positions.append(found.gather(1, order))
        distances.append(exact)
    return Neighbours(torch.cat(positions), torch.cat(distances))
