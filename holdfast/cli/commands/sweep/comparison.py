"""From the trials of a sweep to its table: which trial a method is judged by, and how far it is from plain training."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast.papers.engine.evidence import half_width
from holdfast.papers.engine.execute import CellOutcome
from holdfast.report.pages.sweep import SweepRow

PLAIN = "erm"

#: The numbers of the finished seeds of a trial, by seed.
Numbers = Mapping[int, Mapping[str, float]]


def rows_of(
    outcomes: Iterable[CellOutcome], settings: Mapping[tuple[str, int], str], seeds: Sequence[int], metric: str
) -> list[SweepRow]:
    """A row per selection and method.

    Args:
        outcomes: of cells named ``SELECTION/METHOD/TRIAL``.
        settings: what each method's trial drew.
        seeds: the sweep's seeds.
        metric: what is compared, ``worst_group`` or ``worst_class``.
    """
    by_name: dict[tuple[str, str], dict[int, dict[int, Mapping[str, float]]]] = {}
    errors: dict[tuple[str, str], str] = {}
    for outcome in outcomes:
        selection, method, trial = outcome.cell.split("/")
        of_trial = by_name.setdefault((selection, method), {}).setdefault(int(trial), {})
        if outcome.metrics is None:
            errors.setdefault((selection, method), outcome.error or "it failed")
        else:
            of_trial[outcome.seed] = outcome.metrics
    rows = []
    for (selection, method), trials in by_name.items():
        error = errors.get((selection, method), "")
        chosen = best_trial(trials, len(seeds))
        plain = by_name.get((selection, PLAIN), {})
        base = best_trial(plain, len(seeds))
        if chosen is None:
            rows.append(SweepRow(selection, method, error=error))
            continue
        reference = {} if base is None or method == PLAIN else plain[base]
        spent = sum(numbers["cpu_seconds"] for of in trials.values() for numbers in of.values())
        row = SweepRow(selection, method, chosen, settings[method, chosen], search_seconds=spent, error=error)
        rows.append(_measured(row, trials[chosen], reference, metric))
    return rows


def best_trial(trials: Mapping[int, Numbers], seeds: int) -> int | None:
    """The trial with the best mean validation score among those with the most finished seeds; the first on ties.

    Example:
        >>> best_trial({0: {0: {"score": 0.5}}, 1: {0: {"score": 0.7}}, 2: {}}, 1)
        1
    """
    whole = {trial: numbers for trial, numbers in trials.items() if numbers}
    most = max((len(numbers) for numbers in whole.values()), default=0)
    means = {
        trial: statistics.fmean(one["score"] for one in numbers.values())
        for trial, numbers in sorted(whole.items())
        if len(numbers) == min(most, seeds)
    }
    return max(means, key=lambda trial: means[trial], default=None)


def _measured(row: SweepRow, numbers: Numbers, plain: Numbers, metric: str) -> SweepRow:
    """The row with what the chosen trial's seeds gave, in pairs with plain training's."""
    every = list(numbers.values())
    gains = [numbers[seed][metric] - plain[seed][metric] for seed in numbers if seed in plain]
    mean = statistics.fmean(gains) if gains else None
    half = half_width(gains) if len(gains) > 1 else None
    verdicts = [round(one["verdict"]) for one in every]
    concerns = {name.removeprefix("check "): None for one in every for name, value in one.items() if _bad(name, value)}
    return replace(
        row,
        seeds=len(every),
        worst=statistics.fmean(one[metric] for one in every),
        accuracy=statistics.fmean(one["accuracy"] for one in every),
        gain=mean,
        low=None if mean is None or half is None else mean - half,
        high=None if mean is None or half is None else mean + half,
        verdicts=(verdicts.count(0), verdicts.count(1), verdicts.count(2)),
        concerns=tuple(concerns),
        cpu_seconds=statistics.fmean(one["cpu_seconds"] for one in every),
    )


def _bad(name: str, value: float) -> bool:
    return name.startswith("check ") and value > 0
