"""Whole numbers in given proportions: rounding by largest remainders (Hamilton's method).

Shares are rounded down, and what is then missing goes, one each, to the shares that lost most by that. Among equal
remainders the earlier share gets more. Sizes of clients, colours of images, classes of a mini-batch and sources of
instructions are all rounded here, so that they all add up to exactly what there is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def apportion(total: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers that add up to `total` and are nearest to the weights' proportions.

    Args:
        total: what is shared, 0 or more.
        weights: none negative, not all 0, shape (shares,).

    Returns:
        int64 of shape (shares,), each less than one away from its exact share.

    Example:
        >>> apportion(10, np.array([1.0, 1.0, 2.0])).tolist()
        [3, 2, 5]
    """
    return round_to_total(total * weights / weights.sum(), total)


def round_to_total(exact: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Round shares so that they add up to `total`.

    For callers with exact shares of their own: shares that are equal on paper may differ in the last bit by how they
    were computed, and then another one of them gets the rest.

    Args:
        exact: shares whose sum is `total` up to rounding, shape (shares,).
        total: the sum of what is returned.

    Returns:
        int64 of shape (shares,).

    Example:
        >>> round_to_total(np.array([0.5, 1.75, 0.75]), 3).tolist()
        [0, 2, 1]
    """
    counts: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts
