import math

import numpy as np
import pytest

from holdfast.theory.ditto import (
    Assumptions,
    distances,
    next_distance,
    rate_constant,
    step_size,
    stochastic_ditto,
)


@pytest.fixture(scope="module")
def run():
    optima = np.random.default_rng(0).normal(size=10)
    return stochastic_ditto(optima, selected=5, lambda_=1.0, noise=0.5, steps=20_000, runs=60, seed=0)


def test_personal_models_converge_as_one_over_t(run):
    t = np.arange(300, 20_001)
    slope = np.polyfit(np.log(t), np.log(run.personal[t]), 1)[0]
    assert -1.15 < slope < -0.85


def test_the_bound_of_lemma_13_holds_along_a_run(run):
    assumed = Assumptions(mu=1.0, lambda_=1.0, G1=run.G1, M=run.M, p=0.5)
    bounds = np.array(distances(assumed, run.personal[0], run.common[:-1]))
    assert (run.personal <= bounds).all()
    assert bounds[-1] < 0.1  # not for want of meaning


def test_half_of_the_clients_take_part():
    """With steps of half the length half as often, a run without noise and pull is a mean over who took part."""
    still = stochastic_ditto([2.0] * 4, selected=2, lambda_=0.0, noise=0.0, steps=1, runs=4000, seed=0)
    assert still.personal[0] == 4.0
    # The first step size is 2/(1·1·0.5) = 4: those who take part go to 8, the others stay at 0.
    assert still.personal[1] == pytest.approx((36 + 4) / 2, abs=1e-12)
    assert still.common[1] == pytest.approx((2 - 2 * 2 / 4) ** 2)


def test_the_bound_of_lemma_13_is_the_printed_one():
    mu, lam, G, M, p, t, d, e = 0.5, 2.0, 3.0, 1.5, 0.25, 9, 0.3, 0.04
    printed = (
        (1 - 2 / (t + 1)) * d
        + (4 * (G + lam * M) ** 2 + 4 * lam**2 * e + 8 * lam * (G + lam * M) * math.sqrt(e))
        / ((t + 1) ** 2 * (mu + lam) ** 2 * p**2)
        + 4 * lam * math.sqrt(d * e) / ((t + 1) * (mu + lam) * p)
    )
    assumed = Assumptions(mu, lam, G, M, p)
    assert next_distance(assumed, 1 / (t + 1), d, e) == pytest.approx(printed, rel=1e-14)
    assert step_size(assumed, 1 / (t + 1)) == pytest.approx(2 / ((t + 1) * (mu + lam) * p), rel=1e-14)


@pytest.mark.parametrize("power", [1.0, 0.5], ids=["1/t", "1/sqrt t"])
@pytest.mark.parametrize("p", [1.0, 0.2])
def test_distances_stay_below_the_constant_of_theorem_9_times_the_rate(power, p):
    assumed = Assumptions(mu=0.3, lambda_=1.5, G1=2.0, M=1.0, p=p)
    first = 2 if power == 1 else 4
    distance = 1.7
    constant = rate_constant(assumed, distance, first**-power)
    for t in range(first, 3000):
        g = t**-power
        assert (t + 1) ** -power / g >= 1 - g
        assert distance <= constant * g * (1 + 1e-12)
        distance = next_distance(assumed, g, distance, g)


def test_the_constant_of_theorem_9_is_reached_at_the_rate_one_over_t():
    assumed, first = Assumptions(mu=1.0, lambda_=1.0, G1=1.0, M=1.0), 10_000
    constant = rate_constant(assumed, 0.0, 1 / first)
    distance, last = constant / first, 100_000
    for t in range(first, last):
        distance = next_distance(assumed, 1 / t, distance, 1 / t)
    assert 0.95 * constant < distance * last <= constant


def test_without_pull_the_constant_does_not_depend_on_the_global_model():
    local = Assumptions(mu=2.0, lambda_=0.0, G1=3.0, M=99.0)
    assert rate_constant(local, 0.0, 0.5) == pytest.approx(4 * 9 / 4)
    assert rate_constant(local, 100.0, 0.5) == 200
