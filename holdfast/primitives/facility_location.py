"""Facility location: the few exemplars that stand best for all points, chosen greedily.

A set E of exemplars is worth f(E) = sum_i w_i max_{e in E} s(i, e): every point counts by its similarity to the most
similar exemplar. f is monotone and submodular, so taking the largest gain each time reaches at least 1 - 1/e of
the optimum (Nemhauser, Wolsey and Fisher 1978). With similarity = constant - distance the exemplars are greedy medoids:
SPARE's exemplar clusters, and the coresets of CRAIG and CREST and the medoids of EPIC on gradient distances.

`facility_location` is the one way in. It holds all similarities in memory and runs a compiled loop where they fit,
computes blocks of them again in memory linear in n where they do not, and works on many small parts together; all of
that gives the choices of the naive greedy, ties included. Only ``method="stochastic"``, which looks at a few random
candidates per choice, gives others. `holdfast.integrations.scikit_learn.FacilityLocation` is the same as an estimator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args, overload

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError, nearest
from holdfast.primitives.picks import Pick, naive_picks, recomputed_picks, sampled_picks
from holdfast.primitives.similarity import (
    BITS,
    Blocks,
    Floats,
    Geometry,
    Ints,
    Matrix,
    Metric,
    Points,
    cosine_similarities,
    distance_similarities,
    similarities_in_parts,
)

#: ``greedy`` takes the largest gain each time; ``stochastic`` the largest of a random sample of candidates;
#: ``naive`` does what greedy does with every gain computed from its definition, and is what tests compare with.
Method = Literal["greedy", "stochastic", "naive"]
#: What is known about the points: how they are compared, or that their similarities are given.
Comparison = Metric | Literal["precomputed"]

_SMALL = 256  # points in a part that is worked on together with others
_TOGETHER = 2**22  # similarities of parts that are worked on together
_HELD = 2**27  # similarities kept in memory, as float32; where there are more, they are computed again when needed
_MOST = np.float32(2.0**BITS)


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


@dataclass(frozen=True, eq=False)
class Exemplars:
    """Exemplars of a part.

    Attributes:
        chosen: positions of the exemplars, int64 of shape (k,), in the order of their choice.
        weights: how many points of the part each stands for, float64 of shape (k,).
    """

    chosen: Tensor
    weights: Tensor


@overload
def facility_location(
    points: Tensor | Geometry,
    k: int,
    *,
    metric: Comparison = ...,
    method: Method = ...,
    candidates: Tensor | None = ...,
    weights: Tensor | None = ...,
    least_gain: float = ...,
    stream: torch.Generator | None = ...,
    epsilon: float = ...,
) -> Selection: ...


@overload
def facility_location(
    points: Tensor | Geometry,
    k: Sequence[int],
    *,
    parts: Sequence[Tensor],
    metric: Metric = ...,
    method: Method = ...,
    stream: torch.Generator | None = ...,
    epsilon: float = ...,
) -> list[Exemplars]: ...


def facility_location(
    points: Tensor | Geometry,
    k: int | Sequence[int],
    *,
    parts: Sequence[Tensor] | None = None,
    metric: Comparison = "euclidean",
    method: Method = "greedy",
    candidates: Tensor | None = None,
    weights: Tensor | None = None,
    least_gain: float = 0.0,
    stream: torch.Generator | None = None,
    epsilon: float = 0.1,
) -> Selection | list[Exemplars]:
    """Choose the exemplars that stand best for all points, or those of each of many parts.

    Args:
        points: float of shape (n, d), or anything that has distances, such as `LastLayerGradients`. With
            ``metric="precomputed"``, the similarity of each point to each candidate, float of shape (n, candidates),
            not negative: adding a constant changes no choice; float32 is read as it lies there, anything else copied.
        k: how many to choose; with `parts`, how many in each. Once nothing can be gained, the smallest indices fill up.
        parts: positions of each part's points, int64, to choose within each: the classes of a set, or the classes of
            many random subsets. A point may be in several. Small parts are worked on together, which is what makes
            many of them fast.
        metric: ``cosine``, similarity 1 + the cosine (0 with a zero vector); ``euclidean``, the largest distance
            between a point and a candidate minus the distance; ``exponential``, exp(-distance / dimensions); or
            ``precomputed``.
        method: ``greedy``; ``stochastic``, the best of (candidates / k) ln(1 / epsilon) random candidates each time
            (Mirzasoleiman et al. 2015, https://arxiv.org/abs/1409.7938), for which f is in expectation at least
            1 - 1/e - epsilon of the optimum, in memory linear in n, and gains needn't decrease; or ``naive``.
        candidates: positions of points to choose from, int64; all by default. A sample makes the cost linear in n too.
        weights: of the points, float of shape (n,), not negative; one each by default. Ties are exact for whole
            numbers, and up to float64's rounding for others.
        least_gain: stop before an exemplar that would add less than this to f; the first is always chosen.
        stream: where the samples of ``stochastic`` come from.
        epsilon: what ``stochastic`` may lose, between 0 and 1.

    Returns:
        The exemplars as positions of points (as columns of given similarities); with `parts`, those of each part.

    Raises:
        ConfigError: if an option is unknown or does not go with the others, or k is less than 1 or more than there
            are candidates.
        DataError: if there are no points, shapes disagree, or something is not finite or negative that must not be.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> selection = facility_location(x, 2)
        >>> selection.chosen.tolist(), selection.assignment.tolist(), selection.weights.tolist()
        ([1, 3], [0, 0, 0, 1], [3.0, 1.0])
        >>> [part.chosen.tolist() for part in facility_location(x, [1, 1], parts=[torch.arange(3), torch.arange(3, 4)])]
        [[1], [3]]
    """
    _check_options(metric, method, epsilon, stream, least_gain)
    how = _How(method, stream, epsilon)
    if parts is None and not isinstance(k, Sequence):
        return _of_all(points, k, metric, how, candidates=candidates, weights=weights, least_gain=least_gain)
    if parts is None or not isinstance(k, Sequence):
        raise ConfigError("k is a number for all points together, and a number for each part with parts; give either")
    if metric == "precomputed" or candidates is not None or weights is not None or least_gain:
        raise ConfigError(
            "given similarities, candidates, weights and least_gain are for all points together; "
            "leave them out or choose in each part by itself"
        )
    return _of_parts(points, parts, k, metric, how)


@dataclass(frozen=True)
class _How:
    method: Method
    stream: torch.Generator | None
    epsilon: float


def _check_options(
    metric: Comparison, method: Method, epsilon: float, stream: torch.Generator | None, least_gain: float
) -> None:
    metrics = (*get_args(Metric), "precomputed")
    if metric not in metrics:
        raise ConfigError(f"there is no metric {metric!r}{nearest(str(metric), metrics)}")
    if method not in get_args(Method):
        raise ConfigError(f"there is no method {method!r}{nearest(str(method), get_args(Method))}")
    if not 0 < epsilon < 1:
        raise ConfigError(f"epsilon is {epsilon}; give a number between 0 and 1")
    if method != "stochastic":
        return
    if stream is None:
        raise ConfigError("stochastic greedy draws its candidates; give a stream, such as torch.Generator()")
    if least_gain:
        raise ConfigError(
            f"least_gain is {least_gain} and gains of stochastic greedy go up and down; use another method"
        )


def _of_all(
    points: Tensor | Geometry,
    k: int,
    metric: Comparison,
    how: _How,
    *,
    candidates: Tensor | None = None,
    weights: Tensor | None = None,
    least_gain: float = 0.0,
) -> Selection:
    if metric == "precomputed":
        if not isinstance(points, Tensor) or candidates is not None:
            raise ConfigError("given similarities are a tensor whose columns are all the candidates; give such")
        return _select(_given(points), k, weights, least_gain, how)
    geometry = _checked_points(points, metric)
    if candidates is None:
        eligible = torch.arange(len(geometry))
    else:
        eligible = torch.unique(candidates)
        if len(eligible) == 0 or int(eligible[0]) < 0 or int(eligible[-1]) >= len(geometry):
            raise DataError(
                f"candidates are missing or not all from 0 to {len(geometry) - 1}; give positions of points"
            )
    similarities = _similarities(geometry, eligible.numpy(), metric)
    selection = _select(similarities, k, weights, least_gain, how)
    return replace(selection, chosen=eligible[selection.chosen])


def _of_parts(
    points: Tensor | Geometry, parts: Sequence[Tensor], budgets: Sequence[int], metric: Metric, how: _How
) -> list[Exemplars]:
    geometry = _checked_points(points, metric)
    for positions, budget in zip(parts, budgets, strict=True):
        _checked_budget(budget, len(positions))
    exemplars: dict[int, Exemplars] = {}
    joined = how.method == "greedy" and metric != "cosine"
    together = [number for number, part in enumerate(parts) if len(part) <= _SMALL and joined]
    for number in sorted(set(range(len(parts))) - set(together)):
        alone = _of_all(geometry.part(parts[number]), budgets[number], metric, how)
        exemplars[number] = Exemplars(parts[number][alone.chosen], alone.weights)
    together.sort(key=lambda number: len(parts[number]))
    while together:
        side = len(parts[together[-1]])
        many = max(1, _TOGETHER // side**2)
        some, together = together[-many:], together[:-many]
        chosen = _in_parts(geometry, [parts[number] for number in some], [budgets[number] for number in some], metric)
        exemplars |= dict(zip(some, chosen, strict=True))
    return [exemplars[number] for number in range(len(parts))]


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


def _given(similarity: Tensor) -> Matrix:
    square = similarity.ndim == 2 and similarity.shape[0] == similarity.shape[1]
    matrix = Matrix.given(similarity, symmetric=False)
    if not (square and _loops().is_symmetric(matrix.values)):
        return matrix
    return replace(matrix, symmetric=True)


def _checked_points(points: Tensor | Geometry, metric: Metric) -> Geometry:
    geometry: Geometry = Points(points) if isinstance(points, Tensor) else points
    geometry.check()
    if metric == "cosine" and not isinstance(geometry, Points):
        raise ConfigError("cosines need points with coordinates; use the metric 'euclidean'")
    return geometry


def _similarities(geometry: Geometry, candidates: Ints, metric: Metric) -> Blocks:
    if metric == "cosine" and isinstance(geometry, Points):
        return cosine_similarities(geometry, candidates)
    return distance_similarities(geometry, candidates, metric)


def _select(similarities: Matrix | Blocks, k: int, weights: Tensor | None, least_gain: float, how: _How) -> Selection:
    n, m = similarities.shape
    budget, w = _checked_budget(k, m), _checked_weights(weights, n)
    least = least_gain / similarities.unit
    if how.method != "stochastic" and isinstance(similarities, Blocks) and n * m <= _HELD:
        similarities = similarities.matrix()
    if how.method == "greedy" and isinstance(similarities, Matrix):
        chosen, gains, claimed, ends = _loops().greedy(
            similarities.values, w, budget, np.float32(similarities.scale), _MOST, similarities.symmetric, least
        )
    else:
        picks = list(_worthwhile(_picks(similarities, w, budget, how), least))
        chosen, gains = np.array([pick.exemplar for pick in picks]), np.array([pick.gain for pick in picks])
        claimed = np.concatenate([pick.claimed for pick in picks])
        ends = np.cumsum([len(pick.claimed) for pick in picks])
    gains *= similarities.unit
    if isinstance(similarities, Matrix):
        gains[0] += similarities.offset * w.sum()
    return Selection(*(torch.from_numpy(part) for part in (chosen, gains, claimed, ends, w)))


def _picks(similarities: Matrix | Blocks, weights: Floats, k: int, how: _How) -> Iterator[Pick]:
    if how.method == "stochastic":
        assert how.stream is not None, "_check_options has seen to it"
        sample = math.ceil(similarities.shape[1] / k * math.log(1 / how.epsilon))
        return sampled_picks(similarities, weights, k, sample, how.stream)
    if how.method == "naive" or isinstance(similarities, Matrix):
        return naive_picks(similarities, weights, k)
    return recomputed_picks(similarities, weights, k, _loops().lower, _MOST)


def _worthwhile(picks: Iterator[Pick], least_gain: float) -> Iterator[Pick]:
    for number, pick in enumerate(picks):
        if number > 0 and pick.gain < least_gain:
            return
        yield pick


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
