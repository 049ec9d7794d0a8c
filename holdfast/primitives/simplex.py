"""The probability simplex: vectors of non-negative numbers that add up to one.

Duchi, Shalev-Shwartz, Singer and Chandra, "Efficient projections onto the l1-ball for learning in high dimensions"
(ICML 2008), https://doi.org/10.1145/1390156.1390191.
"""

from __future__ import annotations

import torch
from torch import Tensor


def project_to_simplex(values: Tensor) -> Tensor:
    """The nearest vector of non-negative numbers that add up to one, by sorting.

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
