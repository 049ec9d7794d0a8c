"""How sure a group's numbers are: Wilson's interval of a share, a bootstrap within the group of everything else."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from holdfast.primitives.proportions import wilson
from holdfast.streams import numpy_stream
from holdfast.training.evaluation.by_group.judged import Floats, Judged
from holdfast.training.evaluation.by_group.metrics import Metric

#: Numbers of a block of draws, and of all draws of a group; a large group has fewer draws, never less than `_LEAST`.
_AT_ONCE, _IN_ALL, _LEAST = 2_000_000, 50_000_000, 200
_CALLED = 200

Interval = tuple[float, float]


def intervals(judged: Judged, metrics: Sequence[Metric], *, draws: int, seed: int) -> list[Interval | None]:
    """A 95% interval of each metric on these examples.

    Of a metric without value in some draws (no positives were drawn), the interval is of the draws that have one.

    Args:
        judged: the examples of a group.
        metrics: the metrics.
        draws: how many times examples are drawn again; 0 for Wilson's intervals only.
        seed: decides the draws.

    Returns:
        Lower and upper end, None where there is no interval.
    """
    found: list[Interval | None] = [None if judged.weighted else _wilson(judged, metric) for metric in metrics]
    left = [place for place, interval in enumerate(found) if interval is None]
    if not draws or not left or len(judged) < 2:
        return found
    for place, (low, high) in zip(
        left, _bootstrap(judged, [metrics[place] for place in left], draws, seed), strict=True
    ):
        if np.isfinite(low):
            found[place] = (float(low), float(high))
    return found


def _wilson(judged: Judged, metric: Metric) -> Interval | None:
    successes, trials = (0.0, 0) if metric.share is None else metric.share(judged)
    return wilson(successes, trials) if trials else None


def _bootstrap(judged: Judged, metrics: Sequence[Metric], draws: int, seed: int) -> Floats:
    n, rng = len(judged), numpy_stream(seed, "bootstrap by group")
    draws = min(draws, max(_LEAST, _IN_ALL // n))
    if any(metric.needs == "anything" for metric in metrics):  # somebody's function, called once per draw
        draws = min(draws, _CALLED)
    values, size = [], max(1, _AT_ONCE // n)
    for start in range(0, draws, size):
        rows = min(size, draws - start)
        drawn = rng.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n) * judged.weights
        values.append(np.stack([metric.measure(judged, weights) for metric in metrics]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a metric without a value in any draw has no interval
        ends: Floats = np.nanquantile(np.concatenate(values, 1), [0.025, 0.975], axis=1).T
    return ends
