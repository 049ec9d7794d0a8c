"""Choose a part of the data before training: one function for every way to choose that looks at a vector per example.

Use it to train on a fraction of the data that stands for all of it. Methods that choose while the model learns, such
as CREST, are policies of `fit` (`holdfast.coresets`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import ConfigError, DataError, nearest
from holdfast.finetuning.selection.balanced import resolve_budget
from holdfast.finetuning.selection.baselines import facility_locations, random_subset, source_balanced_random
from holdfast.finetuning.selection.s2l import s2l_select

SelectionMethod = Literal["facility-location", "s2l", "random"]
_METHODS = ("facility-location", "s2l", "random")


def select(
    vectors: ArrayLike,
    budget: int | str,
    method: SelectionMethod = "facility-location",
    *,
    sources: ArrayLike | None = None,
    clusters: int = 100,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Choose `budget` examples by a vector for each of them.

    Args:
        vectors: shape (n, d): embeddings or gradients for ``"facility-location"``, the losses of a small model along
            its training for ``"s2l"`` (see `holdfast.finetuning.TrajectoryRecorder`). An example with a value that is
            not finite is never chosen.
        budget: how many, or a percentage such as ``"10%"``.
        method: ``"facility-location"`` takes examples that are similar to as many others as possible; ``"s2l"`` (Yang
            et al., NeurIPS 2024) clusters the vectors and takes equally many examples of each cluster, which lifts the
            rare ones; ``"random"`` is what both must beat.
        sources: the source, or class, of each example, from 0, shape (n,). Each gets an equal share of the budget,
            as far as it has examples.
        clusters: of each source, for ``"s2l"``.
        seed: names the random streams of ``"s2l"`` and ``"random"``.

    Returns:
        Positions of the chosen examples, increasing, int64 of shape (budget,).

    Raises:
        ConfigError: if there is no such method, or the budget is more than can be chosen.
        DataError: if shapes disagree.

    Example:
        >>> select([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], 2).tolist()
        [1, 2]
    """
    if method not in _METHODS:
        raise ConfigError(f"there is no way to select called {method!r}{nearest(method, _METHODS)}")
    points = np.asarray(vectors, np.float32)
    groups = None if sources is None else np.asarray(sources, np.int64)
    if points.ndim != 2 or (groups is not None and groups.shape != points.shape[:1]):
        shape = "none" if groups is None else groups.shape
        raise DataError(f"vectors have shape {points.shape} and sources {shape}; give (n, d) and (n,)")
    usable: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(points), axis=1)
    unusable: NDArray[np.bool_] = np.logical_not(usable)
    count = resolve_budget(budget, len(points))
    if count > usable.sum():
        raise ConfigError(f"the budget is {count} and {int(usable.sum())} examples have finite vectors; choose fewer")
    if method == "s2l":
        return s2l_select(points, count, k=clusters, sources=groups, undefined=unusable, seed=seed).positions
    if method == "facility-location":
        everywhere = np.zeros(len(points), np.int64) if groups is None else groups
        return facility_locations(points, everywhere, usable, count, equal_sources=True)
    if groups is None:
        return random_subset(usable, count, seed=seed)
    return source_balanced_random(groups, usable, count, seed=seed)
