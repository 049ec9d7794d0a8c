"""Ranks within parts of a set: what takes the first k of every class, group or cluster, without a loop over them."""

from __future__ import annotations

import torch
from torch import Tensor


def rank_in_part(parts: Tensor) -> Tensor:
    """How many earlier elements are of the same part, int64 of shape (n,): the first k of every part rank below k.

    Example:
        >>> import torch
        >>> rank_in_part(torch.tensor([7, 0, 7, 7, 0])).tolist()
        [0, 0, 1, 2, 1]
    """
    counts = torch.bincount(parts)
    by_part = torch.argsort(parts, stable=True)
    rank = torch.empty_like(parts)
    rank[by_part] = torch.arange(len(parts)) - (counts.cumsum(0) - counts)[parts[by_part]]
    return rank
