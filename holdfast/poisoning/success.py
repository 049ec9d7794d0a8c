"""How sure one can be of an attack's success rate after a handful of trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from statistics import NormalDist, fmean

from holdfast.errors import ConfigError
from holdfast.primitives.proportions import wilson


@dataclass(frozen=True)
class SuccessRate:
    """A success rate with Wilson's interval.

    Attributes:
        rate: the mean over trials.
        low: where the interval begins.
        high: where it ends.
        trials: how many.
    """

    rate: float
    low: float
    high: float
    trials: int


def success_rate(successes: Sequence[float], level: float = 0.95) -> SuccessRate:
    """The success rate of trials that succeed or fail, such as those on single targets.

    A backdoor's trials are shares of images instead. Numbers between 0 and 1 vary less than zeros and ones of the same
    mean, so the interval then says less than it could.

    Args:
        successes: of each trial, from 0 to 1.
        level: the share of intervals that should contain the truth.
    """
    if not successes or not all(0 <= one <= 1 for one in successes):
        raise ConfigError(f"successes are {list(successes)}; give at least one, each from 0 to 1")
    low, high = wilson(fsum(successes), len(successes), NormalDist().inv_cdf((1 + level) / 2))
    return SuccessRate(fmean(successes), low, high, len(successes))
