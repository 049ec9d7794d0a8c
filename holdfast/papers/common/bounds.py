"""Claims against a number instead of against another row: a mean beyond a bound, or near a target, beyond its noise.

As in `holdfast.papers.engine.evidence`, a claim holds or fails only where the interval of the mean lies wholly on one
side; elsewhere it is within the noise. `every_seed_reaches` is for cells whose seeds fall into two camps, of which a
mean says nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from holdfast.papers.engine.evidence import half_width, within_noise
from holdfast.papers.engine.experiment import Verdict


def at_least(values: Sequence[float], bound: float, what: str, digits: int = 1) -> Verdict:
    """Whether the mean is at least `bound`."""
    return _decided([value - bound for value in values], f"{_mean(values, what, digits)}, at least {bound:g})")


def at_most(values: Sequence[float], bound: float, what: str, digits: int = 1) -> Verdict:
    """Whether the mean is at most `bound`."""
    return _decided([bound - value for value in values], f"{_mean(values, what, digits)}, at most {bound:g})")


def near(values: Sequence[float], target: float, tolerance: float, what: str, digits: int = 1) -> Verdict:
    """Whether the mean is within `tolerance` of `target`."""
    # How much room is left to the tolerance: one number for the mean, with each seed's deviation put back on it, so
    # that `_decided` finds the same noise here as it does in the values.
    farthest = [
        tolerance - abs(statistics.fmean(values) - target) + value - statistics.fmean(values) for value in values
    ]
    return _decided(farthest, f"{_mean(values, what, digits)}, {target:g} within {tolerance:g})")


def every_seed_reaches(values: Iterable[float], bound: float, what: str, digits: int = 2) -> Verdict:
    """Whether every seed by itself reaches `bound`."""
    shown = list(values)
    listed = ", ".join(f"{value:.{digits}f}" for value in shown)
    return Verdict(min(shown) >= bound, f"{what} {listed} by seed (each at least {bound:g})")


def _mean(values: Sequence[float], what: str, digits: int) -> str:
    noise = "one seed" if len(values) == 1 else f"± {half_width(values):.{digits}f} by {len(values)} seeds"
    return f"{what} {statistics.fmean(values):.{digits}f} ({noise}"


def _decided(margins: Sequence[float], evidence: str) -> Verdict:
    mean, half = statistics.fmean(margins), half_width(margins)
    if mean - half >= 0:
        return Verdict(True, evidence)
    if mean + half < 0:
        return Verdict(False, evidence)
    return within_noise(evidence)
