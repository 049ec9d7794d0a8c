import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from holdfast.primitives.proportions import Z95, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (8, 10, 0.490162, 0.943318),  # the worked example of Wilson's interval for 80% of 10
        (0, 10, 0.0, 0.277533),  # z^2 / (n + z^2)
        (10, 10, 0.722467, 1.0),
        (50, 100, 0.403832, 0.596168),
        (1, 1, 0.206549, 1.0),
    ],
)
def test_the_interval_has_the_hand_computed_ends(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-6)


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_is_that_of_scipy(counts):
    expected = binomtest(*counts).proportion_ci(0.95, method="wilson")
    assert wilson(*counts) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_ends_of_the_interval_solve_its_equation():
    for end in wilson(37, 90):
        assert abs(37 / 90 - end) == pytest.approx(Z95 * (end * (1 - end) / 90) ** 0.5)
