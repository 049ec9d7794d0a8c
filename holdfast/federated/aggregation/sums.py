"""Sums, norms and inner products of updates, accumulated in float64 whatever the updates are stored in.

The updates of a round are a matrix (clients, parameters) that can be large, so it is never converted as a whole: a
block of columns at a time is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_COLUMNS = 4096
#: Between these, squares of norms are exact in float64.
_SMALL, _LARGE = 1e-140, 1e140


def weighted_sum(updates: Tensor, weights: Tensor) -> Tensor:
    """The sum of the updates, each times its weight.

    Every rule that averages goes through here, so two that choose the same weights agree to the last bit.

    Args:
        updates: shape (m, parameters).
        weights: shape (m,).

    Returns:
        Shape (parameters,), in the dtype of the updates.
    """
    weights = weights.to(updates.device, torch.float64)
    total = torch.empty(updates.shape[1], dtype=updates.dtype, device=updates.device)
    for source, target in zip(torch.split(updates, _COLUMNS, 1), torch.split(total, _COLUMNS), strict=True):
        target.copy_(weights @ source.double())
    return total


def mixtures(updates: Tensor, weights: Tensor) -> Tensor:
    """Several weighted sums of the updates at once.

    Args:
        updates: shape (m, parameters).
        weights: shape (mixtures, m), of sum one and not negative.

    Returns:
        Shape (mixtures, parameters), in the dtype of the updates; never beyond its largest number.
    """
    weights = weights.to(updates.device, torch.float64)
    largest = torch.finfo(updates.dtype).max
    mixed = torch.empty(len(weights), updates.shape[1], dtype=updates.dtype, device=updates.device)
    for source, target in zip(torch.split(updates, _COLUMNS, 1), torch.split(mixed, _COLUMNS, 1), strict=True):
        # Rounding may carry a mean of the largest numbers beyond them.
        target.copy_((weights @ source.double()).clamp_(-largest, largest))
    return mixed


def mean_of(updates: Tensor, chosen: Tensor) -> Tensor:
    """The mean of the chosen updates.

    Args:
        updates: shape (m, parameters).
        chosen: positions of at least one update.

    Returns:
        Shape (parameters,), in the dtype of the updates.
    """
    weights = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    weights[chosen] = 1 / len(chosen)
    return weighted_sum(updates, weights)


def update_norms(updates: Tensor) -> Tensor:
    """The Euclidean norm of each update over all layers together, float64 of shape (m,).

    Exact for all finite updates; infinite only where the norm itself has no number in float64.
    """
    squares = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    for block in torch.split(updates, _COLUMNS, 1):
        squares += torch.linalg.vector_norm(block.double(), dim=1).square()
    norms = squares.sqrt()
    # Squares of float64 overflow above 1e154 and vanish below 1e-154: such rows are measured by their largest entry.
    if not ordinary(norms):
        doubtful = ((norms > _LARGE) | (norms < _SMALL)).nonzero().flatten()
        largest, shapes = _normalised(updates[doubtful])
        norms[doubtful] = largest * torch.linalg.vector_norm(shapes, dim=1)
    return norms


def distances_from(updates: Tensor, centre: Tensor) -> tuple[Tensor, int]:
    """Euclidean distances of the updates from a point, for all finite numbers.

    Args:
        updates: shape (m, parameters).
        centre: shape (parameters,).

    Returns:
        float64 of shape (m,), and the power of two that is their unit: that of the median where they are out of range.
        A distance is infinite, or zero, only where it is so many times larger, or smaller, than the median.
    """
    squares = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    blocks = list(zip(torch.split(updates, _COLUMNS, 1), torch.split(centre, _COLUMNS), strict=True))
    for block, middle in blocks:
        squares += torch.linalg.vector_norm(block.double() - middle.double(), dim=1).square()
    distances = squares.sqrt()
    if ordinary(distances):
        return distances, 0
    # In quarters: the difference of the largest numbers of float64 itself has no number.
    quarters = [block.double() / 4 - middle.double() / 4 for block, middle in blocks]
    largest, shapes = _normalised(torch.cat(quarters, dim=1))
    exponent = math.frexp(float(largest.median()) or float(largest.max()))[1]
    unit = torch.ldexp(largest, torch.tensor(-(exponent // 2)))
    unit = torch.ldexp(unit, torch.tensor(exponent // 2 - exponent))
    return unit * torch.linalg.vector_norm(shapes, dim=1), exponent + 2


def ordinary(lengths: Tensor) -> bool:
    """Whether products of vectors of these lengths are exact in float64."""
    return bool(((lengths >= _SMALL) & (lengths <= _LARGE)).all())


def directions(updates: Tensor) -> Tensor:
    """The updates with length one, float64 of shape (m, parameters); zero vectors have no direction and stay zero."""
    _, shapes = _normalised(updates)
    lengths: Tensor = torch.linalg.vector_norm(shapes, dim=1, keepdim=True)
    return shapes / lengths.clamp(min=1)


def _normalised(updates: Tensor) -> tuple[Tensor, Tensor]:
    """The largest entry of each update, shape (m,), and the updates divided by it; both float64."""
    values = updates.double()
    largest = values.abs().amax(1)
    return largest, values / largest.where(largest > 0, 1.0)[:, None]


def products(updates: Tensor) -> Tensor:
    """Inner products of the updates, float64 of shape (m, m)."""
    gram = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
    for block in torch.split(updates, _COLUMNS, 1):
        converted = block.double()
        gram += converted @ converted.T
    return gram
