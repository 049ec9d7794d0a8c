"""Facility location: the few exemplars that stand best for all points, chosen greedily.

A set E of exemplars is worth f(E) = sum_i w_i max_{e in E} s(i, e): every point counts by its similarity to the most
similar exemplar. f is monotone and submodular, so taking the largest gain each time reaches at least 1 - 1/e of
the optimum (Nemhauser, Wolsey and Fisher 1978). With similarity = constant - distance the exemplars are greedy medoids:
SPARE's exemplar clusters, and the coresets of CRAIG and CREST and the medoids of EPIC on gradient distances.

The textbook way looks at all similarities for every choice. Here the gains of all candidates are kept, and a
choice changes them only through the points that it brings nearer, about n / k of them at the k-th: n^2 log k in all,
about half the time of a heap of stale gains (lazy greedy) in our measurements. Similarities are rounded to multiples of
2^-24 of the largest, so that float64 sums are exact in any order. Kept gains then equal recomputed ones, and ties are
true ties: the smallest index wins, as in the reference `naive_facility_location`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.errors import ConfigError, DataError, nearest

Metric = Literal["cosine", "euclidean"]

_BLOCK = 2**16  # similarities worked on at once: few enough for the processor's cache
_FEWEST_ROWS = 16  # worked on at once however many candidates there are, because thin products are slow
_HELD = 2**26  # similarities kept in memory, as float32; where there are more, they are computed again when needed
_BITS = 24  # of a similarity: as many as float32 has

_Array = NDArray[np.floating[Any]]
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Where = _Ints | slice


@dataclass(frozen=True, eq=False)
class Selection:
    """Exemplars in the order of their choice, and what each stands for.

    Attributes:
        chosen: the exemplars, int64 of shape (k,).
        gains: what each added to f when it was chosen, float64 of shape (k,), never increasing.
        claims: per exemplar the points that were more similar to it than to all before, int64.
        point_weights: weight of each point, float64 of shape (n,).
    """

    chosen: Tensor
    gains: Tensor
    claims: tuple[Tensor, ...]
    point_weights: Tensor

    @cached_property
    def assignment(self) -> Tensor:
        """The place in `chosen` of each point's most similar exemplar, the earliest on ties: int64 of shape (n,)."""
        places = torch.zeros(len(self.point_weights), dtype=torch.int64)
        for place, claimed in enumerate(self.claims):
            places[claimed] = place
        return places

    @cached_property
    def weights(self) -> Tensor:
        """How much each exemplar stands for, float64 of shape (k,): the summed weights of its points, itself included.

        It is 0 only for exemplars that add nothing, such as copies of earlier ones.
        """
        return torch.bincount(self.assignment, weights=self.point_weights, minlength=len(self.chosen))

    def first(self, k: int) -> Selection:
        """What a budget of k would have chosen: greedy choices are nested."""
        return Selection(self.chosen[:k], self.gains[:k], self.claims[:k], self.point_weights)


def facility_location(
    similarity: Tensor, k: int, *, weights: Tensor | None = None, least_gain: float = 0.0
) -> Selection:
    """Choose k exemplars greedily, given all similarities.

    Args:
        similarity: of each point to each candidate, float of shape (n, candidates), not negative. Adding a constant
            changes no choice.
        k: how many to choose. Once nothing can be gained, the smallest indices fill up.
        weights: of the points, float of shape (n,), not negative; one each by default. Ties are exact for whole
            numbers, and up to float64's rounding for others.
        least_gain: stop before an exemplar that would add less than this to f; the first is always chosen.

    Returns:
        The exemplars, as columns of `similarity`.

    Raises:
        ConfigError: if k is less than 1 or more than there are candidates.
        DataError: if shapes disagree, or a similarity or weight is negative or not finite.

    Example:
        >>> import torch
        >>> x = torch.tensor([0.0, 1.0, 2.0, 9.0])
        >>> found = facility_location(9 - (x[:, None] - x).abs(), 2)
        >>> found.chosen.tolist(), found.assignment.tolist(), found.weights.tolist()
        ([1, 3], [0, 0, 0, 1], [3.0, 1.0])
    """
    return _select(_given(similarity), k, weights, least_gain)


def facility_location_on_points(
    points: Tensor,
    k: int,
    *,
    metric: Metric,
    candidates: Tensor | None = None,
    weights: Tensor | None = None,
    least_gain: float = 0.0,
) -> Selection:
    """Choose k of the points as exemplars, in memory linear in n where all similarities would be too many to keep.

    Args:
        points: float of shape (n, d).
        k: how many to choose.
        metric: ``cosine``, similarity 1 + the cosine (0 with a zero vector), or ``euclidean``, the largest distance
            between a point and a candidate minus the distance.
        candidates: positions to choose from, int64; all points by default. A sample makes the cost linear in n too.
        weights: of the points, as in `facility_location`.
        least_gain: as in `facility_location`.

    Returns:
        The exemplars, as positions of points.

    Raises:
        ConfigError: if the metric is unknown, or k is less than 1 or more than there are candidates.
        DataError: if there are no points, some are not finite, or a candidate or weight makes no sense.
    """
    if points.ndim != 2 or len(points) == 0:
        raise DataError(f"points have shape {tuple(points.shape)}; give (n, d) with n at least 1")
    if not bool(torch.isfinite(points).all()):
        raise DataError("some points are not finite, so they have no similarities; leave them out")
    if metric not in get_args(Metric):
        raise ConfigError(f"there is no metric {metric!r}{nearest(metric, get_args(Metric))}")
    eligible = torch.arange(len(points)) if candidates is None else torch.unique(candidates)
    if len(eligible) == 0 or int(eligible[0]) < 0 or int(eligible[-1]) >= len(points):
        raise DataError(f"candidates are missing or not all from 0 to {len(points) - 1}; give positions of points")
    x = points.to(torch.float64).numpy()
    similarities = _cosine(x, eligible.numpy()) if metric == "cosine" else _euclidean(x, eligible.numpy())
    found = _select(similarities, k, weights, least_gain)
    return Selection(eligible[found.chosen], found.gains, found.claims, found.point_weights)


def naive_facility_location(similarity: Tensor, k: int, *, weights: Tensor | None = None) -> Selection:
    """What `facility_location` computes, with every gain from its definition: the reference that it is tested with."""
    s, w = _given(similarity).rows(slice(None)), _checked_weights(weights, len(similarity))
    best = np.zeros(len(s))
    chosen, gains, claims = list[int](), list[float](), list[_Ints]()
    for _ in range(_checked_budget(k, s.shape[1])):
        gain = w @ np.maximum(s - best[:, None], 0)
        gain[chosen] = -np.inf
        exemplar = int(gain.argmax())
        chosen.append(exemplar)
        gains.append(float(gain[exemplar]))
        claims.append(np.flatnonzero(s[:, exemplar] > best))
        best = np.maximum(best, s[:, exemplar])
    return _selection(chosen, gains, claims, w)


class _Similarities(Protocol):
    """Where similarities come from: kept, or computed again when asked for."""

    @property
    def shape(self) -> tuple[int, int]:
        """Points and candidates."""

    def rows(self, points: _Ints) -> _Array:
        """Similarities of some points to all candidates, (points, candidates), in a fresh array."""

    def column(self, candidate: int) -> _Array:
        """Similarities of all points to one candidate, (n,)."""


@dataclass(frozen=True)
class _Held:
    """All similarities in memory."""

    matrix: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def rows(self, points: _Ints) -> _Array:
        return self.matrix[points]

    def column(self, candidate: int) -> _Array:
        return self.matrix[:, candidate]


@dataclass(frozen=True)
class _Computed:
    """Similarities as a function of the positions of points and candidates, rounded to multiples of `step`."""

    shape: tuple[int, int]
    step: float
    block: Callable[[_Where, _Where], _Floats]

    def rows(self, points: _Where) -> _Floats:
        return self._rounded(self.block(points, slice(None)))

    def column(self, candidate: int) -> _Floats:
        return self._rounded(self.block(slice(None), slice(candidate, candidate + 1)))[:, 0]

    def held(self) -> _Similarities:
        """The same, kept in memory unless there are too many."""
        if self.shape[0] * self.shape[1] > _HELD:
            return self
        matrix = np.empty(self.shape, np.float32)
        for part in _parts(np.arange(self.shape[0]), self.shape[1]):
            matrix[part] = self.rows(part)
        return _Held(matrix)

    def _rounded(self, block: _Floats) -> _Floats:
        block /= self.step
        np.rint(block, out=block)
        block *= self.step
        return block


def _given(similarity: Tensor) -> _Computed:
    if similarity.ndim != 2 or similarity.numel() == 0:
        raise DataError(f"similarity has shape {tuple(similarity.shape)}; give (n, candidates), both at least 1")
    least, largest = (float(end) for end in torch.aminmax(similarity))
    if not (np.isfinite(least) and np.isfinite(largest)):
        raise DataError("some similarities are not finite; leave their points out")
    if least < 0:
        raise DataError(f"the least similarity is {least:g}; add a constant, so that none is negative")
    s = similarity.numpy()
    return _Computed((s.shape[0], s.shape[1]), _step(largest), lambda rows, columns: s[rows][:, columns].astype(float))


def _cosine(x: _Floats, candidates: _Ints) -> _Computed:
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, norm, out=np.zeros_like(x), where=norm > 0)
    others = unit[candidates]

    def raw(rows: _Where, columns: _Where) -> _Floats:
        cosine: _Floats = unit[rows] @ others[columns].T
        return np.maximum(1 + cosine, 0, out=cosine)

    return _Computed((len(x), len(candidates)), _step(2.0), raw)


def _euclidean(x: _Floats, candidates: _Ints) -> _Computed:
    """Squared distances are |a|^2 + |b|^2 - 2ab, by one product; those within its rounding are 0."""
    x = x - x.mean(0)
    square, one = np.square(x).sum(1, keepdims=True), np.ones((len(x), 1))
    left, right = np.hstack([-2 * x, square, one]), np.hstack([x, one, square])[candidates]
    rounding = 4 * left.shape[1] * np.finfo(float).eps * float(square.max())

    def squared(rows: _Where, columns: _Where) -> _Floats:
        block: _Floats = left[rows] @ right[columns].T
        block[block <= rounding] = 0
        return block

    parts = _parts(np.arange(len(x)), len(candidates))
    largest = float(np.sqrt(max(squared(rows, slice(None)).max() for rows in parts)))

    def raw(rows: _Where, columns: _Where) -> _Floats:
        block = squared(rows, columns)
        np.sqrt(block, out=block)
        return np.subtract(largest, block, out=block)

    return _Computed((len(x), len(candidates)), _step(largest), raw)


def _step(largest: float) -> float:
    """The distance of neighbours on the grid: a power of two, so that whole numbers are on it."""
    return float(2.0 ** (np.frexp(largest)[1] - _BITS))


def _select(computed: _Computed, k: int, weights: Tensor | None, least_gain: float) -> Selection:
    budget, w = _checked_budget(k, computed.shape[1]), _checked_weights(weights, computed.shape[0])
    chosen, gains, claims = list[int](), list[float](), list[_Ints]()
    for exemplar, gain, claimed in _picks(computed.held(), w, budget):
        if chosen and gain < least_gain:
            break
        chosen.append(exemplar)
        gains.append(gain)
        claims.append(claimed)
    return _selection(chosen, gains, claims, w)


def _picks(similarities: _Similarities, weights: _Floats, k: int) -> Iterator[tuple[int, float, _Ints]]:
    """The exemplars one after the other, each with its gain and the points it is nearest to so far."""
    n, m = similarities.shape
    gains = np.zeros(m)
    for part in _parts(np.arange(n), m):
        gains += weights[part] @ similarities.rows(part).astype(np.float64, copy=False)
    best = np.zeros_like(similarities.column(0))
    for number in range(1, k + 1):
        exemplar = int(gains.argmax())
        column = similarities.column(exemplar)
        nearer = np.flatnonzero(column > best)
        yield exemplar, max(0.0, float(gains[exemplar])), nearer
        if number == k:
            return
        for part in _parts(nearer, m):
            rows, low, high = similarities.rows(part), best[part, None], column[part, None]
            np.clip(rows, low, high, out=rows)
            gains -= weights[part] @ rows.astype(np.float64, copy=False) - weights[part] @ low[:, 0]
        gains[exemplar] = -np.inf
        best[nearer] = column[nearer]


def _parts(rows: _Ints, width: int) -> Iterator[_Ints]:
    """Rows of that width, as many at a time as make a block."""
    height = max(_FEWEST_ROWS, _BLOCK // width)
    return (rows[start : start + height] for start in range(0, len(rows), height))


def _selection(chosen: list[int], gains: list[float], claims: list[_Ints], weights: _Floats) -> Selection:
    return Selection(
        torch.tensor(chosen, dtype=torch.int64),
        torch.tensor(gains, dtype=torch.float64),
        tuple(torch.from_numpy(claimed) for claimed in claims),
        torch.from_numpy(weights),
    )


def _checked_budget(k: int, candidates: int) -> int:
    if not 1 <= k <= candidates:
        raise ConfigError(f"k is {k} and there are {candidates} candidates; give 1 to {candidates}")
    return k


def _checked_weights(weights: Tensor | None, n: int) -> _Floats:
    if weights is None:
        return np.ones(n)
    if weights.shape != (n,) or not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise DataError(
            f"weights of shape {tuple(weights.shape)} are not ({n},), finite and at least 0; give such or none"
        )
    return weights.to(torch.float64).numpy()
