"""The loops of greedy facility location, compiled by Numba at their first call and kept on disk from then on.

The textbook greedy looks at all similarities for every choice, lazy greedy at those of the candidates on top of a heap.
Here the gains of all candidates are kept, and a choice changes them only through the points that it serves better
than any before, about n / k of them at the k-th: n^2 log k similarities in all, read row by row, which measured three
times as fast as a compiled lazy greedy at n = 10,000. Similarities are rounded to whole multiples of a small unit on
the way from memory, so that sums in float64 are exact in any order. Kept gains then equal recomputed ones and ties
are true ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_F32 = NDArray[np.float32]
_F64 = NDArray[np.float64]
_Ints = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _clipped(value: Any, scale: Any, low: Any, high: Any) -> Any:
    return min(max(np.rint(value * scale), low), high)


@njit(cache=True, nogil=True)
def lower(similarity: _F32, rows: _Ints, low: _F32, high: _F32, weights: _F64, scale: np.float32, gains: _F64) -> None:
    """Take from every candidate's gain what it can no longer add, now that some points are served better.

    A point that was served at `low` and is now at `high` takes ``weight x (min(max(s, low), high) - low)`` from a
    candidate whose similarity is s. Four rows are read at a time, so that the gains are read and written once for them.

    Args:
        similarity: to all candidates, shape (any, candidates).
        rows: which of its rows are those points, shape (p,).
        low: how well each was served, in units, shape (p,).
        high: how well it is served now, in units, shape (p,).
        weights: of the points, shape (p,).
        scale: units in a similarity of one.
        gains: in units, shape (candidates,); changed in place.
    """
    whole = len(rows) - len(rows) % 4
    for q in range(0, whole, 4):
        r0, r1, r2, r3 = similarity[rows[q]], similarity[rows[q + 1]], similarity[rows[q + 2]], similarity[rows[q + 3]]
        l0, l1, l2, l3 = low[q], low[q + 1], low[q + 2], low[q + 3]
        h0, h1, h2, h3 = high[q], high[q + 1], high[q + 2], high[q + 3]
        w0, w1, w2, w3 = weights[q], weights[q + 1], weights[q + 2], weights[q + 3]
        before = (w0 * l0 + w1 * l1) + (w2 * l2 + w3 * l3)
        for j in range(len(gains)):
            first = w0 * _clipped(r0[j], scale, l0, h0) + w1 * _clipped(r1[j], scale, l1, h1)
            second = w2 * _clipped(r2[j], scale, l2, h2) + w3 * _clipped(r3[j], scale, l3, h3)
            gains[j] -= (first + second) - before
    for q in range(whole, len(rows)):
        row = similarity[rows[q]]
        for j in range(len(gains)):
            gains[j] -= weights[q] * (_clipped(row[j], scale, low[q], high[q]) - low[q])


@njit(cache=True, nogil=True)
def greedy(
    similarity: _F32, weights: _F64, k: int, scale: np.float32, most: np.float32, symmetric: bool, least_gain: float
) -> tuple[_Ints, _F64, _Ints, _Ints]:
    """Choose up to k candidates, always the one with the largest gain, the smallest index on ties.

    Args:
        similarity: of points to candidates, shape (n, candidates).
        weights: of the points, shape (n,).
        k: how many to choose.
        scale: units in a similarity of one.
        most: no similarity has more units.
        symmetric: whether a row may be read in place of a column, which is faster.
        least_gain: stop before a gain of fewer units; the first is always chosen.

    Returns:
        What was chosen, shape (c,); the gains, shape (c,); the points that each was the best for when it was chosen,
        one after the other; and where each one's points end there, shape (c,).
    """
    n = len(similarity)
    best, column = np.zeros(n, np.float32), np.empty(n, np.float32)
    nearer = np.empty(n, np.int64)
    gains = np.zeros(similarity.shape[1])
    lower(similarity, np.arange(n), best, np.full(n, most, np.float32), weights, scale, gains)
    gains = -gains
    chosen, values, ends = np.empty(k, np.int64), np.empty(k), np.empty(k, np.int64)
    claims, end = np.empty(4 * n, np.int64), 0
    for place in range(k):
        exemplar = np.argmax(gains)
        gain = max(0.0, gains[exemplar])
        if place > 0 and gain < least_gain:
            return chosen[:place], values[:place], claims[:end], ends[:place]
        count = 0
        for i in range(n):
            raw = similarity[exemplar, i] if symmetric else similarity[i, exemplar]
            column[i] = np.rint(raw * scale)
            if column[i] > best[i]:
                nearer[count] = i
                count += 1
        if end + count > len(claims):
            longer = np.empty(2 * (end + count), np.int64)
            longer[:end] = claims[:end]
            claims = longer
        claimed = nearer[:count]
        claims[end : end + count] = claimed
        end += count
        chosen[place], values[place], ends[place] = exemplar, gain, end
        if place + 1 < k:
            lower(similarity, claimed, best[claimed], column[claimed], weights[claimed], scale, gains)
            gains[exemplar] = -np.inf
            best[claimed] = column[claimed]
    return chosen, values, claims[:end], ends


@njit(cache=True, nogil=True)
def greedy_in_parts(similarity: _F32, sizes: _Ints, budgets: _Ints, most: np.float32) -> tuple[_Ints, _Ints]:
    """`greedy` on many small symmetric matrices, and how many points each chosen one stands for.

    Args:
        similarity: in units, shape (parts, s, s); of each part the first `size` rows and columns, zeros beyond.
        sizes: points in each part, shape (parts,).
        budgets: how many to choose in each, at most its size, shape (parts,).
        most: no similarity has more units.

    Returns:
        What was chosen within each part, one part after the other, and the points that each stands for.
    """
    chosen, counts = np.empty(budgets.sum(), np.int64), np.zeros(budgets.sum(), np.int64)
    weights, owner = np.zeros(similarity.shape[1]), np.empty(similarity.shape[1], np.int64)
    start = 0
    for part in range(len(sizes)):
        size, budget = sizes[part], budgets[part]
        weights[:] = 0
        weights[:size] = 1
        found, _, claims, ends = greedy(similarity[part], weights, budget, np.float32(1), most, True, 0.0)
        chosen[start : start + budget] = found
        begin = 0
        owner[:] = 0
        for place in range(budget):
            owner[claims[begin : ends[place]]] = place
            begin = ends[place]
        for point in range(size):
            counts[start + owner[point]] += 1
        start += budget
    return chosen, counts


@njit(cache=True, nogil=True)
def is_symmetric(matrix: _F32) -> bool:
    """Whether a square matrix equals its transpose; a tile at a time, so that columns are read from the cache."""
    n, tile = len(matrix), 64
    for top in range(0, n, tile):
        for left in range(0, top + tile, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, i)):
                    if matrix[i, j] != matrix[j, i]:
                        return False
    return True
