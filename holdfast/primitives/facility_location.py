"""Facility location: the few exemplars that stand best for all points, chosen greedily.

A set E of exemplars is worth f(E) = sum_i w_i max_{e in E} s(i, e): every point counts by its similarity to the most
similar exemplar. f is monotone and submodular, so taking the largest gain each time reaches at least 1 - 1/e of
the optimum (Nemhauser, Wolsey and Fisher 1978). With similarity = constant - distance the exemplars are greedy medoids:
SPARE's exemplar clusters, and the coresets of CRAIG and CREST and the medoids of EPIC on gradient distances.

All ways here give the choices of `naive_facility_location`, ties included: with all similarities in memory by a
compiled loop, in memory linear in n by computing blocks of them again (`holdfast.primitives.greedy` says how). Only
`stochastic_facility_location`, which looks at a few random candidates per choice, gives others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError, nearest
from holdfast.primitives.similarity import (
    BITS,
    Blocks,
    Floats,
    Geometry,
    Ints,
    Matrix,
    Metric,
    Points,
    batches_of_rows,
    cosine_similarities,
    distance_similarities,
    similarities_in_parts,
)

_SMALL = 256  # points in a part that is worked on together with others
_TOGETHER = 2**22  # similarities of parts that are worked on together
_HELD = 2**27  # similarities kept in memory, as float32; where there are more, they are computed again when needed


@dataclass(frozen=True, eq=False)
class Selection:
    """Exemplars in the order of their choice, and what each stands for.

    Attributes:
        chosen: the exemplars, int64 of shape (k,).
        gains: what each added to f when it was chosen, float64 of shape (k,), never increasing.
        claims: for one exemplar after the other the points that were more similar to it than to all before, int64.
        ends: where each exemplar's points end in `claims`, int64 of shape (k,).
        point_weights: weight of each point, float64 of shape (n,).
    """

    chosen: Tensor
    gains: Tensor
    claims: Tensor
    ends: Tensor
    point_weights: Tensor

    @cached_property
    def assignment(self) -> Tensor:
        """The place in `chosen` of each point's most similar exemplar, the earliest on ties: int64 of shape (n,)."""
        places = np.zeros(len(self.point_weights), np.int64)
        counts = np.diff(self.ends.numpy(), prepend=0)
        places[self.claims.numpy()] = np.repeat(np.arange(len(counts)), counts)  # the last claim of a point holds
        return torch.from_numpy(places)

    @cached_property
    def weights(self) -> Tensor:
        """How much each exemplar stands for, float64 of shape (k,): the summed weights of its points, itself included.

        It is 0 only for exemplars that add nothing, such as copies of earlier ones.
        """
        return torch.bincount(self.assignment, weights=self.point_weights, minlength=len(self.chosen))

    def first(self, k: int) -> Selection:
        """What a budget of k would have chosen: greedy choices are nested."""
        last = int(self.ends[k - 1])
        return Selection(self.chosen[:k], self.gains[:k], self.claims[:last], self.ends[:k], self.point_weights)


def facility_location(
    similarity: Tensor, k: int, *, weights: Tensor | None = None, least_gain: float = 0.0
) -> Selection:
    """Choose k exemplars greedily, given all similarities.

    Args:
        similarity: of each point to each candidate, float of shape (n, candidates), not negative. Adding a constant
            changes no choice. Float32 is read as it lies there; anything else is copied.
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
    points: Tensor | Geometry,
    k: int,
    *,
    metric: Metric,
    candidates: Tensor | None = None,
    weights: Tensor | None = None,
    least_gain: float = 0.0,
) -> Selection:
    """Choose k of the points as exemplars, in memory linear in n where all similarities would be too many to keep.

    Args:
        points: float of shape (n, d), or anything that has distances, such as `LastLayerGradients`.
        k: how many to choose.
        metric: ``cosine``, similarity 1 + the cosine (0 with a zero vector); ``euclidean``, the largest distance
            between a point and a candidate minus the distance; or ``exponential``, exp(-distance / dimensions).
        candidates: positions to choose from, int64; all points by default. A sample makes the cost linear in n too.
        weights: of the points, as in `facility_location`.
        least_gain: as in `facility_location`.

    Returns:
        The exemplars, as positions of points.

    Raises:
        ConfigError: if the metric is unknown, or k is less than 1 or more than there are candidates.
        DataError: if there are no points, some are not finite, or a candidate or weight makes no sense.
    """
    geometry = _checked_points(points, metric)
    if candidates is None:
        eligible = torch.arange(len(geometry))
    else:
        eligible = torch.unique(candidates)
        if len(eligible) == 0 or int(eligible[0]) < 0 or int(eligible[-1]) >= len(geometry):
            raise DataError(
                f"candidates are missing or not all from 0 to {len(geometry) - 1}; give positions of points"
            )
    found = _select(_held(_similarities(geometry, eligible.numpy(), metric)), k, weights, least_gain)
    return replace(found, chosen=eligible[found.chosen])


@dataclass(frozen=True, eq=False)
class Exemplars:
    """Exemplars of a part.

    Attributes:
        chosen: positions of the exemplars, int64 of shape (k,), in the order of their choice.
        weights: how many points of the part each stands for, float64 of shape (k,).
    """

    chosen: Tensor
    weights: Tensor


def facility_location_in_parts(
    points: Tensor | Geometry, parts: list[Tensor], budgets: list[int], *, metric: Metric = "euclidean"
) -> list[Exemplars]:
    """Choose exemplars within each of many parts: the classes of a set, or the classes of many random subsets.

    Args:
        points: as in `facility_location_on_points`.
        parts: positions of each part's points, int64; a point may be in several parts.
        budgets: how many to choose in each, at least one.
        metric: as in `facility_location_on_points`.

    Returns:
        The exemplars of each part. Small parts are worked on together, which is what makes many of them fast.

    Raises:
        ConfigError: if a budget is more than there are points in its part.
        DataError: if there are no points, or some are not finite.
    """
    geometry = _checked_points(points, metric)
    for positions, budget in zip(parts, budgets, strict=True):
        _checked_budget(budget, len(positions))
    found: dict[int, Exemplars] = {}
    together = [number for number, part in enumerate(parts) if len(part) <= _SMALL and metric != "cosine"]
    for number in set(range(len(parts))) - set(together):
        alone = facility_location_on_points(geometry.part(parts[number]), budgets[number], metric=metric)
        found[number] = Exemplars(parts[number][alone.chosen], alone.weights)
    together.sort(key=lambda number: len(parts[number]))
    while together:
        side = len(parts[together[-1]])
        many = max(1, _TOGETHER // side**2)
        some, together = together[-many:], together[:-many]
        chosen = _in_parts(geometry, [parts[number] for number in some], [budgets[number] for number in some], metric)
        found |= dict(zip(some, chosen, strict=True))
    return [found[number] for number in range(len(parts))]


def _in_parts(geometry: Geometry, parts: list[Tensor], budgets: list[int], metric: Metric) -> list[Exemplars]:
    places = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    sizes = torch.tensor([len(part) for part in parts])
    inside = torch.arange(places.shape[1]) < sizes[:, None]
    similarity = similarities_in_parts(geometry, places, inside, metric)
    chosen, counts = _loops().greedy_in_parts(similarity, sizes.numpy(), np.array(budgets), _MOST)
    picked, weights = torch.from_numpy(chosen), torch.from_numpy(counts).to(torch.float64)
    return [
        Exemplars(part[own], weight)
        for part, own, weight in zip(parts, torch.split(picked, budgets), torch.split(weights, budgets), strict=True)
    ]


def stochastic_facility_location(
    points: Tensor | Geometry, k: int, *, metric: Metric, stream: torch.Generator, epsilon: float = 0.1
) -> Selection:
    """Choose k of the points, each time the best of a random sample of the rest (Mirzasoleiman et al. 2015).

    With (n / k) ln(1 / epsilon) candidates in each sample, f is in expectation at least 1 - 1/e - epsilon of the
    optimum, for n ln(1 / epsilon) columns of similarities in all, in memory linear in n.

    Args:
        points: as in `facility_location_on_points`.
        k: how many to choose.
        metric: as in `facility_location_on_points`.
        stream: where the samples come from.
        epsilon: what may be lost, between 0 and 1.

    Returns:
        The exemplars, as positions of points; gains needn't decrease.

    Raises:
        ConfigError: if the metric is unknown, k makes no sense, or epsilon isn't between 0 and 1.
        DataError: if there are no points, or some are not finite.
    """
    if not 0 < epsilon < 1:
        raise ConfigError(f"epsilon is {epsilon}; give a number between 0 and 1")
    geometry = _checked_points(points, metric)
    n = len(geometry)
    budget = _checked_budget(k, n)
    similarities = _similarities(geometry, np.arange(n), metric)
    size = math.ceil(n / budget * math.log(1 / epsilon))
    best, rest = np.zeros(n, np.float32), torch.randperm(n, generator=stream).numpy()
    chosen, gains, claims = list[int](), list[float](), list[Ints]()
    for number in range(budget):
        left = n - number
        drawn = torch.randperm(left, generator=stream)[:size].numpy() if left > size else np.arange(left)
        columns = similarities.columns(rest[drawn])
        gained = np.maximum(columns - best[:, None], 0).sum(0, dtype=np.float64)
        tied = np.flatnonzero(gained == gained.max())
        winner = int(tied[np.argmin(rest[drawn[tied]])])
        chosen.append(int(rest[drawn[winner]]))
        gains.append(float(gained[winner]) * similarities.unit)
        claims.append(np.flatnonzero(columns[:, winner] > best))
        best = np.maximum(best, columns[:, winner])
        rest[drawn[winner]] = rest[left - 1]
    return _joined(chosen, gains, claims, np.ones(n))


def naive_facility_location(similarity: Tensor, k: int, *, weights: Tensor | None = None) -> Selection:
    """What `facility_location` computes, with every gain from its definition: the reference that it is tested with."""
    matrix = _given(similarity)
    s = np.rint(matrix.values * np.float32(matrix.scale)).astype(np.float64)
    w = _checked_weights(weights, len(s))
    best = np.zeros(len(s))
    chosen, gains, claims = list[int](), list[float](), list[Ints]()
    for _ in range(_checked_budget(k, s.shape[1])):
        gain = w @ np.maximum(s - best[:, None], 0)
        gain[chosen] = -np.inf
        exemplar = int(gain.argmax())
        chosen.append(exemplar)
        gains.append(float(gain[exemplar]) * matrix.unit)
        claims.append(np.flatnonzero(s[:, exemplar] > best))
        best = np.maximum(best, s[:, exemplar])
    gains[0] += matrix.offset * w.sum()
    return _joined(chosen, gains, claims, w)


def _given(similarity: Tensor) -> Matrix:
    square = similarity.ndim == 2 and similarity.shape[0] == similarity.shape[1]
    matrix = Matrix.given(similarity, symmetric=False)
    if not (square and _loops().is_symmetric(matrix.values)):
        return matrix
    return replace(matrix, symmetric=True)


def _checked_points(points: Tensor | Geometry, metric: Metric) -> Geometry:
    if metric not in get_args(Metric):
        raise ConfigError(f"there is no metric {metric!r}{nearest(metric, get_args(Metric))}")
    geometry: Geometry = Points(points) if isinstance(points, Tensor) else points
    geometry.check()
    if metric == "cosine" and not isinstance(geometry, Points):
        raise ConfigError("cosines need points with coordinates; use the metric 'euclidean'")
    return geometry


def _similarities(geometry: Geometry, candidates: Ints, metric: Metric) -> Blocks:
    if metric == "cosine" and isinstance(geometry, Points):
        return cosine_similarities(geometry, candidates)
    return distance_similarities(geometry, candidates, metric)


def _held(similarities: Blocks) -> Matrix | Blocks:
    n, candidates = similarities.shape
    return similarities.matrix() if n * candidates <= _HELD else similarities


def _select(similarities: Matrix | Blocks, k: int, weights: Tensor | None, least_gain: float) -> Selection:
    budget, w = _checked_budget(k, similarities.shape[1]), _checked_weights(weights, similarities.shape[0])
    least = least_gain / similarities.unit
    if isinstance(similarities, Matrix):
        chosen, gains, claimed, ends = _loops().greedy(
            similarities.values, w, budget, np.float32(similarities.scale), _MOST, similarities.symmetric, least
        )
        gains *= similarities.unit
        gains[0] += similarities.offset * w.sum()
        return _selection(chosen, gains, claimed, ends, w)
    picks = list(_picks(similarities, w, budget, least))
    return _joined(
        [exemplar for exemplar, _, _ in picks],
        [gain * similarities.unit for _, gain, _ in picks],
        [claimed for _, _, claimed in picks],
        w,
    )


_MOST = np.float32(2.0**BITS)


def _picks(blocks: Blocks, weights: Floats, k: int, least_gain: float) -> Iterator[tuple[int, float, Ints]]:
    """What `holdfast.primitives.greedy.greedy` does, with rows that are computed when they are needed."""
    lower, one = _loops().lower, np.float32(1)
    n, m = blocks.shape
    gains, best = np.zeros(m), np.zeros(n, np.float32)

    def serve(points: Ints, served: Any) -> None:
        for part in batches_of_rows(points, m):
            rows = blocks.rows(part)
            lower(rows, np.arange(len(part)), best[part], served[part], weights[part], one, gains)

    serve(np.arange(n), np.full(n, _MOST))
    gains = -gains
    for number in range(k):
        exemplar = int(gains.argmax())
        gain = max(0.0, float(gains[exemplar]))
        if number > 0 and gain < least_gain:
            return
        column = blocks.columns(np.array([exemplar]))[:, 0]
        nearer = np.flatnonzero(column > best)
        yield exemplar, gain, nearer
        if number + 1 < k:
            serve(nearer, column)
            gains[exemplar] = -np.inf
            best[nearer] = column[nearer]


def _joined(chosen: list[int], gains: list[float], claims: list[Ints], weights: Floats) -> Selection:
    ends = np.cumsum([len(claimed) for claimed in claims])
    return _selection(np.array(chosen), np.array(gains), np.concatenate(claims), ends, weights)


def _selection(chosen: Ints, gains: Floats, claims: Ints, ends: Ints, weights: Floats) -> Selection:
    return Selection(*(torch.from_numpy(part) for part in (chosen, gains, claims, ends, weights)))


def _loops() -> Any:
    """The compiled loops; imported at their first use, because Numba takes half a second to import."""
    from holdfast.primitives import greedy  # noqa: PLC0415

    return greedy


def _checked_budget(k: int, candidates: int) -> int:
    if not 1 <= k <= candidates:
        raise ConfigError(f"k is {k} and there are {candidates} candidates; give 1 to {candidates}")
    return k


def _checked_weights(weights: Tensor | None, n: int) -> Floats:
    if weights is None:
        return np.ones(n)
    if weights.shape != (n,) or not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise DataError(
            f"weights of shape {tuple(weights.shape)} are not ({n},), finite and at least 0; give such or none"
        )
    return weights.to(torch.float64).numpy()
