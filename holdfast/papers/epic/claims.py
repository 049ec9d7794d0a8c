"""How EPIC's claims are decided: by the same trials on both sides, and only where chance can be ruled out.

A trial on one target succeeds or fails, so two defences are compared by the exact sign test over the trials that count
for both, and a rate with a bound by the binomial distribution. A backdoor's trial is a share of images, and such
trials are compared by their differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from holdfast.papers.engine.evidence import LEVEL, above, fewer, half_width, within_noise
from holdfast.papers.engine.experiment import Verdict
from holdfast.papers.engine.results import Metric, Results


def trials_that_count(metrics: Mapping[str, Metric]) -> list[bool]:
    """Which trials count: clean victims, plain and defended, see the target rightly, a backdoor's targets mostly."""
    if "clean right" not in metrics:
        return [True] * len(metrics["success"].ours.values)
    controls = (metrics[name].ours.values for name in ("clean right", "defended right"))
    return [min(pair) > 0.5 for pair in zip(*controls, strict=True)]


def successes(results: Results, cell: str) -> dict[int, float]:
    """Of the trials of a cell that count the success from 0 to 1, by seed."""
    shares = results.by_seed(cell, "success")
    counts = trials_that_count(results.cell(cell).metrics)
    return {seed: value / 100 for (seed, value), one in zip(shares.items(), counts, strict=True) if one}


def stops_more(results: Results, ours: str, theirs: str) -> Verdict:
    """Whether fewer trials succeed in one cell than in another, over those that count in both."""
    own, other = successes(results, ours), successes(results, theirs)
    seeds = [seed for seed in own if seed in other]
    what = f"{ours} against {theirs}"
    if not seeds:
        return Verdict(None, f"{what}: no trial counts in both")
    pairs = [(own[seed], other[seed]) for seed in seeds]
    if all(value in (0, 1) for pair in pairs for value in pair):
        verdict = fewer([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        return Verdict(verdict.holds, f"{what}: {verdict.evidence}")
    return above([b - a for a, b in pairs], what=f"success of {theirs} minus that of {ours}")


def rate_at_least(results: Results, cell: str, bound: float) -> Verdict:
    """Whether the success rate of a cell is at least a bound: fails or holds where chance is ruled out."""
    return _beyond(results, cell, bound, 1)


def rate_at_most(results: Results, cell: str, bound: float) -> Verdict:
    """Whether the success rate of a cell is at most a bound."""
    return _beyond(results, cell, bound, -1)


def _beyond(results: Results, cell: str, bound: float, side: int) -> Verdict:
    values = list(successes(results, cell).values())
    if not values:
        return Verdict(None, f"{cell}: no trial counts")
    if any(value not in (0, 1) for value in values):
        what = f"success of {cell} minus {bound:g}" if side > 0 else f"{bound:g} minus success of {cell}"
        return above([side * (value - bound) for value in values], what=what)
    n, k = len(values), round(sum(values))
    more, less = binomial_tail(n, k, bound), 1 - binomial_tail(n, k + 1, bound)
    chances = {1: (more, less), -1: (less, more)}[side]
    evidence = f"{cell}: {k} of {n} ({k / n:.0%}, bound {bound:.0%}, p = {min(more, less):.3f})"
    if min(chances) > LEVEL:
        return within_noise(evidence)
    return Verdict(chances[0] <= LEVEL, evidence)


def binomial_tail(n: int, k: int, rate: float) -> float:
    """The chance of at least `k` successes in `n` trials at a rate.

    Example:
        >>> round(binomial_tail(10, 9, 0.5), 4)
        0.0107
    """
    return math.fsum(math.comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(k, n + 1))


def rarer(ours: Sequence[float], theirs: Sequence[float], what: str) -> Verdict:
    """Whether successes are rarer in one group of trials than in another group: Fisher's exact test, one-sided.

    Args:
        ours: 0 or 1 per trial.
        theirs: 0 or 1 per trial, other trials.
        what: what is compared, for the evidence.
    """
    k, total, n, m = round(sum(ours)), round(sum(ours) + sum(theirs)), len(ours), len(theirs)

    def chance(of: range) -> float:
        return math.fsum(math.comb(n, i) * math.comb(m, total - i) for i in of if i <= total) / math.comb(n + m, total)

    fewer_, more = chance(range(k + 1)), chance(range(k, n + 1))
    evidence = f"{what}: {k} of {n} against {total - k} of {m} (p = {min(fewer_, more):.3f})"
    if min(fewer_, more) > LEVEL:
        return within_noise(evidence)
    return Verdict(fewer_ <= LEVEL, evidence)


def by_pair(results: Results, cell: str, metric: str, other: str, what: str | None = None) -> dict[int, float]:
    """Differences of a metric between a cell and another by seed."""
    own, theirs = results.by_seed(cell, metric), results.by_seed(other, what or metric)
    return {seed: own[seed] - theirs[seed] for seed in own if seed in theirs}


def slower(results: Results, cell: str, other: str, bound: float, side: int = 1) -> Verdict:
    """Whether a cell takes more than `bound` times as long as another, or less where `side` is -1.

    Times differ by factors, so it is their logarithms whose mean is taken.
    """
    own, theirs = results.by_seed(cell, "seconds"), results.by_seed(other, "seconds")
    logs = [math.log(own[seed] / theirs[seed]) for seed in own if seed in theirs]
    verdict = above([side * (value - math.log(bound)) for value in logs])
    mean, half = math.exp(fmean(logs)), math.exp(half_width(logs))
    evidence = f"{cell} takes {mean:.2f} times as long as {other} (within a factor of {half:.2f}, bound {bound:.2f})"
    return within_noise(evidence) if verdict.holds is None else Verdict(verdict.holds, evidence)
