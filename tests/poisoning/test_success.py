"""Success rates of a handful of trials."""

import pytest
from scipy.stats import binomtest

from holdfast.errors import ConfigError
from holdfast.poisoning.success import success_rate


@pytest.mark.parametrize("wins, trials, level", [(0, 10, 0.95), (3, 10, 0.95), (10, 10, 0.9), (25, 100, 0.99)])
def test_the_interval_is_wilsons(wins: int, trials: int, level: float) -> None:
    rate = success_rate([1.0] * wins + [0.0] * (trials - wins), level)
    expected = binomtest(wins, trials).proportion_ci(level, method="wilson")
    assert (rate.low, rate.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert rate.rate == wins / trials and rate.trials == trials


def test_shares_count_too() -> None:
    rate = success_rate([0.7, 0.9])
    assert rate.rate == pytest.approx(0.8)
    assert 0 < rate.low < 0.8 < rate.high < 1


@pytest.mark.parametrize("wrong", [[], [1.2], [-0.1, 0.5]])
def test_what_is_no_trial(wrong: list[float]) -> None:
    with pytest.raises(ConfigError, match="each from 0 to 1"):
        success_rate(wrong)
