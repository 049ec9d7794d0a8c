"""Settings that follow from the size of the data, each with its reason.

The document's settings are for 262,040 examples: mini-batches of 128, twelve points, 100 clusters of each source. On a
few hundred rows they mean fifteen steps, after which a proxy has learned nothing, and clusters of a handful of
examples. Here each is the document's where the data allow it, and otherwise what keeps its purpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.errors import ConfigError

EPOCHS, BATCH_SIZE, CLUSTERS, POINTS = 3, 128, 100, 12
#: Fewer steps than this teach a small model little, whatever their size.
ENOUGH_STEPS = 300
_MOST_EPOCHS, _SMALLEST_BATCH = 10, 4
#: Recording may take this share of the training's time, and has a point at the middle and at the end in any case.
_RECORDING, _FEWEST_POINTS = 0.5, 2
#: Examples of a cluster on average, and picks of it, from which on its curve is more than a single example's.
_MEMBERS, _PICKS = 20, 3


@dataclass(frozen=True)
class Suggestion:
    """A setting.

    Attributes:
        value: of it.
        reason: why, a clause.
    """

    value: int
    reason: str


@dataclass(frozen=True)
class Suggestions:
    """How a proxy is trained and looked at where nothing else is asked for.

    Attributes:
        epochs: passes over the examples that it is trained on.
        batch_size: examples of a step.
        points: of a loss curve.
        clusters: of each source.
    """

    epochs: Suggestion
    batch_size: Suggestion
    points: Suggestion
    clusters: Suggestion


def suggest(
    examples: int,
    budget: int,
    *,
    sources: int = 1,
    trained: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
) -> Suggestions:
    """Settings for so many examples.

    Args:
        examples: to choose from.
        budget: to be chosen.
        sources: that share the budget.
        trained: examples that the proxy is trained on; all by default.
        epochs: asked for by the user, if at all.
        batch_size: the same.

    Raises:
        ConfigError: if there is nothing to choose from.

    Example:
        >>> found = suggest(600, 300)
        >>> found.epochs.value, found.batch_size.value, found.points.value, found.clusters.value
        (3, 4, 4, 30)
    """
    if min(examples, budget, sources) < 1:
        raise ConfigError(f"there are {examples} examples of {sources} sources and a budget of {budget}; give some")
    trained = trained or examples
    size = _batch_size(trained, epochs or EPOCHS) if batch_size is None else Suggestion(batch_size, "as asked for")
    passes = _epochs(trained, size.value) if epochs is None else Suggestion(epochs, "as asked for")
    return Suggestions(
        passes, size, _points(examples, trained, passes.value), _clusters(examples / sources, budget / sources)
    )


def _batch_size(trained: int, epochs: int) -> Suggestion:
    fits = [size for size in _powers() if steps(trained, size, epochs) >= ENOUGH_STEPS]
    if fits and fits[0] == BATCH_SIZE:
        return Suggestion(BATCH_SIZE, "the published one")
    size = fits[0] if fits else _SMALLEST_BATCH
    return Suggestion(size, f"{steps(trained, BATCH_SIZE, epochs):,} steps of {BATCH_SIZE} would teach it little")


def _powers() -> list[int]:
    """Sizes of mini-batches from the published one down."""
    return [2**power for power in range(BATCH_SIZE.bit_length() - 1, _SMALLEST_BATCH.bit_length() - 2, -1)]


def _epochs(trained: int, batch_size: int) -> Suggestion:
    epochs = min(_MOST_EPOCHS, max(EPOCHS, math.ceil(ENOUGH_STEPS / math.ceil(trained / batch_size))))
    if epochs == EPOCHS:
        return Suggestion(EPOCHS, "the published ones")
    return Suggestion(epochs, f"{EPOCHS} would be {steps(trained, batch_size, EPOCHS):,} steps")


def _points(examples: int, trained: int, epochs: int) -> Suggestion:
    """A pass to record costs a third of a pass to train (2 of 6 units of parameters x tokens)."""
    affordable = math.floor(_RECORDING * 3 * epochs * trained / examples)
    points = min(POINTS, max(_FEWEST_POINTS, affordable))
    if points > affordable:
        return Suggestion(points, "fewer say nothing of how losses run; recording takes more than half of the training")
    return Suggestion(points, "recording takes at most about half as long as the training")


def _clusters(members: float, picks: float) -> Suggestion:
    by_members, by_picks = max(2, int(members // _MEMBERS)), max(2, int(picks // _PICKS))
    clusters = min(CLUSTERS, by_members, by_picks)
    if clusters == CLUSTERS:
        return Suggestion(CLUSTERS, "the published ones")
    if clusters == by_members:
        return Suggestion(clusters, f"{_MEMBERS} examples of a cluster on average")
    return Suggestion(clusters, f"{_PICKS} picks of a cluster on average")


def steps(examples: int, batch_size: int, epochs: int) -> int:
    """Optimizer steps of a training."""
    return epochs * math.ceil(examples / batch_size)
