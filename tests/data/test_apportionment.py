from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.apportionment import apportion, round_to_total

weights_of_shares = st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any)


def by_hand(total: int, weights: list[int]) -> list[int]:
    """Largest remainders in exact fractions, one unit after the other; of equal remainders the first."""
    exact = [Fraction(total * weight, sum(weights)) for weight in weights]
    counts = [int(share) for share in exact]
    remainders = [share - count for share, count in zip(exact, counts, strict=True)]
    for _ in range(total - sum(counts)):
        largest = remainders.index(max(remainders))
        counts[largest] += 1
        remainders[largest] = Fraction(-1)
    return counts


@given(st.integers(0, 500), weights_of_shares)
def test_shares_add_up_and_are_less_than_one_from_their_exact_values(total: int, weights: list[int]) -> None:
    counts = apportion(total, np.array(weights, np.float64))
    assert counts.dtype == np.int64 and counts.sum() == total
    assert all(abs(int(c) - Fraction(total * w, sum(weights))) < 1 for c, w in zip(counts, weights, strict=True))


@given(st.integers(0, 64), st.lists(st.integers(0, 8), min_size=1, max_size=6).filter(lambda w: sum(w) in (1, 2, 4, 8)))
def test_the_largest_remainders_are_rounded_up_and_of_equal_ones_the_first(total: int, weights: list[int]) -> None:
    # Sums that are powers of two, so that every share is exact in floating point and ties are real ties.
    assert apportion(total, np.array(weights, np.float64)).tolist() == by_hand(total, weights)


def test_exact_shares_of_the_callers_own_decide_who_gets_the_rest() -> None:
    assert round_to_total(np.array([0.5, 0.5]), 1).tolist() == [1, 0]
    assert round_to_total(np.array([0.5, np.nextafter(0.5, 1)]), 1).tolist() == [0, 1]


@pytest.mark.parametrize("total", [0, 7])
def test_a_share_without_weight_gets_nothing(total: int) -> None:
    assert apportion(total, np.array([0.0, 3.0])).tolist() == [0, total]
