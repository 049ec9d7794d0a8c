"""Folds: a set cut at random into parts of equal size in which every group keeps its share.

DFR tunes on one half of the validation set what it fits on the other; SSA labels each third of the training set by a
model that never saw it. Both would fail on a fold that lacks a small group, so groups are dealt out evenly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.primitives.ranks import rank_in_part


def folds(parts: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Deal the examples of each part out to `count` folds in turn, after shuffling.

    Args:
        parts: class or group of each example, int64 of shape (n,).
        count: how many folds.
        generator: random stream.

    Returns:
        Fold of each example, int64 of shape (n,). The first folds get what doesn't divide evenly.

    Example:
        >>> import torch
        >>> parts = torch.tensor([0, 0, 0, 0, 1, 1])
        >>> fold = folds(parts, 2, torch.Generator().manual_seed(0))
        >>> torch.bincount(parts[fold == 0]).tolist(), torch.bincount(parts[fold == 1]).tolist()
        ([2, 1], [2, 1])
    """
    shuffled = torch.randperm(len(parts), generator=generator)
    fold = torch.empty_like(parts)
    fold[shuffled] = rank_in_part(parts[shuffled]) % count
    return fold
