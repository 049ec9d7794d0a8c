"""How claims are decided when seeds differ: by pairs of the same seed, and only beyond their noise.

Two methods under one seed see the same data, the same initial weights and the same draws, so their difference is taken
seed by seed. A claim of the form "a is above b" holds if the mean difference is above the margin with 95 % confidence
(one-sided t over the pairs), fails if it is below it with the same confidence, and is otherwise not judged: within the
noise. A single pair has no noise to compare with, and the evidence says that it is one seed. Counts of successes are
compared by the exact sign test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from holdfast.papers.engine.experiment import Verdict
from holdfast.papers.engine.results import Results

#: 95 % points of Student's t by degrees of freedom; beyond the table the normal one.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
_NORMAL95 = 1.645

#: The error that a verdict may have by chance.
LEVEL = 0.05

Where = tuple[str, str]
"""A cell and a metric of it."""


def half_width(values: Sequence[float]) -> float:
    """Half the width of the interval in which the mean lies, so that each end has an error of 5 %; 0 for one value."""
    if len(values) < 2:
        return 0.0
    freedom = len(values) - 1
    t = _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95
    return t * statistics.stdev(values) / math.sqrt(len(values))


def above(differences: Sequence[float], margin: float = 0.0, *, digits: int = 3, what: str = "difference") -> Verdict:
    """Whether the mean of paired differences is above a margin, beyond its noise.

    Args:
        differences: one per seed, ours minus theirs.
        margin: what it has to exceed.
        digits: decimals of the evidence.
        what: what the difference is of, for the evidence.

    Returns:
        Holds, fails, or None within the noise.
    """
    mean, half = statistics.fmean(differences), half_width(differences)  # `half` is 0 for one seed
    seeds = "one seed" if len(differences) == 1 else f"± {half:.{digits}f} by {len(differences)} pairs"
    evidence = f"{what} {mean:+.{digits}f} ({seeds}" + (f", to exceed {margin:g})" if margin else ")")
    if mean - half > margin:
        return Verdict(True, evidence)
    if mean + half < margin or not half:  # one seed, or no noise at all: then a tie is not above
        return Verdict(False, evidence)
    return within_noise(evidence)


def within_noise(evidence: str) -> Verdict:
    """Not judged, because what was seen could be chance."""
    return Verdict(None, f"within the noise: {evidence}")


def differences(results: Results, first: Where, second: Where) -> list[float]:
    """The first (cell, metric) less the second, seed by seed, under the seeds that both have."""
    return paired(results.by_seed(*first), results.by_seed(*second))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], *, times: float = 1.0) -> list[float]:
    """Differences under the seeds that both sides have.

    Args:
        ours: values by seed.
        theirs: values by seed.
        times: by what theirs are multiplied before they are subtracted.
    """
    return [ours[seed] - times * theirs[seed] for seed in ours if seed in theirs]


def beats(
    results: Results, better: Where, other: Where, margin: float = 0.0, *, digits: int = 3, what: str | None = None
) -> Verdict:
    """Whether one entry of a table is above another, seed by seed, see `above`."""
    return above(
        differences(results, better, other), margin, digits=digits, what=what or f"{better[0]} minus {other[0]}"
    )


def fewer(ours: Sequence[float], theirs: Sequence[float], what: str = "successes") -> Verdict:
    """Whether fewer trials of ours succeeded than of theirs, the same trials on both sides: the exact sign test.

    Args:
        ours: 0 or 1 per trial.
        theirs: 0 or 1 for the same trials.
        what: what is counted, for the evidence.

    Returns:
        Holds if fewer, fails if more, None where the trials that differ could be chance.
    """
    better = sum(a < b for a, b in zip(ours, theirs, strict=True))
    worse = sum(a > b for a, b in zip(ours, theirs, strict=True))
    chance = sign_test(better, worse)
    evidence = (
        f"{sum(ours):g} against {sum(theirs):g} {what} of {len(ours)} ({better} trials fewer, {worse} more, "
        f"p = {chance:.3f})"
    )
    if chance > LEVEL:
        return within_noise(evidence)
    return Verdict(better > worse, evidence)


def sign_test(better: int, worse: int) -> float:
    """The chance of a split at least as uneven in the same direction if both sides were alike (one-sided).

    Example:
        >>> sign_test(5, 0)
        0.03125
    """
    n, most = better + worse, max(better, worse)
    return min(1.0, math.fsum(math.comb(n, k) for k in range(most, n + 1)) / math.pow(2, n))


def every(verdicts: Sequence[Verdict]) -> Verdict:
    """All of them: fails if one fails, holds if all hold, else not judged. The evidence begins with what decided."""
    for wanted in (False, None):
        deciding = [verdict.evidence for verdict in verdicts if verdict.holds is wanted]
        if deciding:
            others = [verdict.evidence for verdict in verdicts if verdict.holds is not wanted]
            return Verdict(wanted, "; ".join([*deciding, *others]))
    return Verdict(True, "; ".join(verdict.evidence for verdict in verdicts))
