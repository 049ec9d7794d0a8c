import pytest
import torch

from holdfast.streams import torch_stream
from holdfast.theory.spurious import Mixture, fitted_shares, optimal_shares

MAJORITY_ONLY = torch.tensor([[100_000, 0], [0, 100_000]])


@pytest.mark.parametrize(("core_ratio", "spurious_ratio"), [(1.0, 0.1), (0.4, 0.2), (0.1, 0.5)])
def test_least_squares_shares_the_output_as_predicted(core_ratio, spurious_ratio):
    mixture = Mixture.orthogonal(4, 1.0, 0.25, MAJORITY_ONLY, torch_stream(0, "mixture"))
    sample = mixture.draw(
        torch_stream(0, "sample"), core_noise=2 * core_ratio, spurious_noise=spurious_ratio, other_noise=0
    )
    p, q = fitted_shares(mixture, sample)
    expected = optimal_shares(core_ratio, spurious_ratio)
    assert p / q == pytest.approx((spurious_ratio / core_ratio) ** 2, rel=0.05)
    assert (p, q) == (pytest.approx(expected.core, abs=0.005), pytest.approx(expected.spurious, abs=0.005))


@pytest.mark.parametrize(("core_ratio", "spurious_ratio"), [(1.0, 0.1), (0.3, 0.3), (0.05, 2.0)])
def test_the_shares_solve_the_normal_equations(core_ratio, spurious_ratio):
    p, q = optimal_shares(core_ratio, spurious_ratio)
    assert p * (1 + 2 * core_ratio**2) + q == pytest.approx(1)
    assert p + q * (1 + 2 * spurious_ratio**2) == pytest.approx(1)


def test_a_cleaner_spurious_feature_carries_the_output():
    p, q = optimal_shares(core_ratio=0.5, spurious_ratio=0.1)
    assert q > 2**-0.5 > 10 * p
