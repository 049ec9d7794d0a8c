"""Choosing fine-tuning data by other ways than S2L, from what each needs, and how much each pick stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError
from holdfast.finetuning.selection.baselines import (
    facility_locations,
    high_learnability,
    least_confidence,
    longest,
    middle_perplexity,
    random_subset,
    source_balanced_random,
)
from holdfast.finetuning.selection.names import Method

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Seen:
    """What is known of the examples; what a way doesn't need may be missing.

    Attributes:
        sources: of the examples, from 0, int64 of shape (n,).
        usable: examples that may be chosen, shape (n,).
        lengths: of what is learned of them.
        before: losses before the reference's training.
        after: losses after it.
        confidence: mean probability of a response's tokens after it.
        states: hidden states after it, shape (n, d).
    """

    sources: Ints
    usable: Mask
    lengths: Ints | None = None
    before: Floats | None = None
    after: Floats | None = None
    confidence: Floats | None = None
    states: NDArray[np.float32] | None = None


def choose_by(method: Method, seen: Seen, budget: int, *, by_source: bool = True, seed: int = 0) -> Ints:
    """Choose by a way other than S2L.

    Args:
        method: its name.
        seen: what it needs of the examples.
        budget: how many.
        by_source: facility location within each source, with equal shares; else over everything.
        seed: names the random streams.

    Returns:
        Increasing positions.

    Raises:
        ConfigError: if something that the way needs is missing, or there are too few examples.
    """
    usable = seen.usable
    sources = seen.sources if by_source else np.zeros_like(seen.sources)
    ways: Mapping[str, tuple[tuple[str, ...], Callable[..., Ints]]] = {
        "random": ((), lambda: random_subset(usable, budget, seed=seed)),
        "source-balanced": ((), lambda: source_balanced_random(seen.sources, usable, budget, seed=seed)),
        "longest": (("lengths",), lambda lengths: longest(lengths, usable, budget)),
        "least-confidence": (("confidence",), lambda sure: least_confidence(sure, usable, budget)),
        "middle-perplexity": (("after",), lambda after: middle_perplexity(after, usable, budget)),
        "learnability": (("before", "after"), lambda before, after: high_learnability(before, after, usable, budget)),
        "facility-location": (
            ("states",),
            lambda states: facility_locations(states, sources, usable, budget, equal_sources=by_source),
        ),
    }
    if method not in ways:
        raise ConfigError(f"{method!r} does not choose by scores of examples; known are {', '.join(ways)}")
    needs, way = ways[method]
    given = [getattr(seen, name) for name in needs]
    missing = [name for name, value in zip(needs, given, strict=True) if value is None]
    if missing:
        raise ConfigError(f"{method} needs {' and '.join(missing)} of the examples; give that")
    return way(*given)


def weights_of(positions: Ints, groups: Ints) -> NDArray[np.float64]:
    """How many examples each pick stands for, in units of the mean: its group's size over the picks of its group.

    A loss with these weights estimates the loss on everything, where plain picks of equal shares estimate that of the
    groups in equal parts.

    Args:
        positions: of the picks.
        groups: cluster or source of every example; those with a negative one stand for nothing.

    Returns:
        Shape of `positions`, with mean one.
    """
    sizes = np.bincount(groups[groups >= 0])
    picks = np.bincount(groups[positions], minlength=len(sizes))
    weights = (sizes / np.maximum(picks, 1))[groups[positions]]
    normalised: NDArray[np.float64] = weights / weights.mean()
    return normalised
