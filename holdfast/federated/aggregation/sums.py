"""Sums, norms and inner products of updates, accumulated in float64 whatever the updates are stored in.

The updates of a round are a matrix (clients, parameters) that can be large, so it is never converted as a whole: a
block of columns at a time is.
"""

from __future__ import annotations

import torch
from torch import Tensor

_COLUMNS = 4096


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
    """The Euclidean norm of each update over all layers together, float64 of shape (m,)."""
    squares = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    for block in torch.split(updates, _COLUMNS, 1):
        squares += torch.linalg.vector_norm(block.double(), dim=1).square()
    return squares.sqrt()


def products(updates: Tensor) -> Tensor:
    """Inner products of the updates, float64 of shape (m, m)."""
    gram = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
    for block in torch.split(updates, _COLUMNS, 1):
        converted = block.double()
        gram += converted @ converted.T
    return gram
