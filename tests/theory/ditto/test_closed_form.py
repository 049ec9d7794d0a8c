import math
from dataclasses import replace

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.theory.ditto import (
    PointEstimation,
    best_lambda,
    conditional_spread,
    coordinate_covariance,
    coordinate_error,
    device_variance,
    error,
    fairest_lambda,
    mixing,
    posterior,
    spread,
)

CLEAN = PointEstimation(K=8, sigma=0.8, n=30, tau=0.1)
ATTACKED = PointEstimation(K=16, K_a=8, sigma=0.8, n=30, tau=0.1, tau_a=0.5)
REGRESSION = PointEstimation(K=6, K_a=2, d=4, n=10, beta=25.0, sigma=1.0, tau=0.3, tau_a=0.9)

LAMBDAS = {
    CLEAN: (0, 0.4, 1, 32 / 15, 3, 10, 100, math.inf),
    ATTACKED: (0, 0.4, 1, 32 / 27, 3, 10, 100, math.inf),
}
ERRORS = {
    CLEAN: (0.02133333, 0.01290476, 0.00952083, 0.00862411, 0.00875521, 0.01005234, 0.01124609, 0.01141667),
    ATTACKED: (0.02133333, 0.01291497, 0.01055208, 0.01048588, 0.01207552, 0.01544490, 0.01787779, 0.01820833),
}
SPREADS = {
    CLEAN: (7.964444e-4, 2.888954e-4, 1.536476e-4, 1.243881e-4, 1.284936e-4, 1.722917e-4, 2.176963e-4, 2.245833e-4),
    ATTACKED: (7.964444e-4, 2.893132e-4, 1.819210e-4, 1.758552e-4, 2.093570e-4, 3.316026e-4, 4.452810e-4, 4.622917e-4),
}


@pytest.mark.parametrize("setting", [CLEAN, ATTACKED], ids=["clean", "attacked"])
def test_errors_and_spreads_have_the_reference_numbers(setting):
    np.testing.assert_allclose(coordinate_error(setting, LAMBDAS[setting]), ERRORS[setting], atol=5.1e-9)
    np.testing.assert_allclose(spread(setting, LAMBDAS[setting]), SPREADS[setting], atol=5.1e-11)


def test_the_best_lambdas_of_figure_1_are_the_documents():
    assert best_lambda(CLEAN) == pytest.approx(2.133333, abs=5e-7)
    assert best_lambda(ATTACKED) == pytest.approx(32 / 27, rel=1e-14)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (PointEstimation(K=20, sigma=1.0, n=20, tau=0.2001), (1.248751, 0.05, 0.023623, 0.040462)),
        (PointEstimation(K=10, K_a=3, sigma=0.5, n=10, tau=0.2001, tau_a=0.1), (0.640391, 0.025, 0.016216, 0.037565)),
        (PointEstimation(K=20, sigma=1.0, n=20, tau=0.0501), (None, 0.05, 0.004771, 0.004880)),
        (PointEstimation(K=20, sigma=1.0, n=20, tau=0.5001), (None, 0.05, 0.042086, 0.239621)),
    ],
    ids=["clean", "attacked", "alike", "unlike"],
)
def test_the_settings_of_figure_2_have_the_reference_numbers(setting, expected):
    best, *errors = expected
    if best is not None:
        assert best_lambda(setting) == pytest.approx(best, abs=5.1e-7)
    np.testing.assert_allclose(coordinate_error(setting, [0, best_lambda(setting), 1000]), errors, atol=5.1e-7)


def test_regression_has_the_reference_numbers():
    assert best_lambda(REGRESSION) == pytest.approx(0.7246376812, abs=5.1e-11)
    assert coordinate_error(REGRESSION, best_lambda(REGRESSION)) == pytest.approx(0.0325093633, abs=5.1e-11)
    assert error(REGRESSION, best_lambda(REGRESSION)) == pytest.approx(0.1300374532, abs=5.1e-11)
    assert error(REGRESSION, 2) == pytest.approx(0.1586831276, abs=5.1e-11)
    assert spread(REGRESSION, 2) == pytest.approx(0.0088957171, abs=5.1e-11)


def test_weights_of_the_estimates_add_up_to_one():
    a, b = mixing(REGRESSION, [0, 0.5, 7, math.inf])
    np.testing.assert_allclose(a + (REGRESSION.K - 1) * b, 1, atol=1e-15)
    np.testing.assert_allclose(a[1], (2.5 + 0.5 / 6) / 3.0, rtol=1e-15)


def test_the_ends_are_the_local_and_the_global_model():
    for setting in (CLEAN, ATTACKED, REGRESSION):
        s2, K = setting.noise, setting.K
        everywhere = (1 - 1 / K) * setting.tau**2 + s2 / K + setting.excess / K**2
        np.testing.assert_allclose(coordinate_error(setting, [0, math.inf]), [s2, everywhere], rtol=1e-14)


def random_settings(count, clean=False):
    rng = np.random.default_rng(0)
    for _ in range(count):
        K, tau = int(rng.integers(3, 40)), float(rng.uniform(0.05, 2))
        K_a = 0 if clean else int(rng.integers(1, K - 1))
        tau_a = None if clean else tau * float(rng.uniform(1, 5))
        n, d = int(rng.integers(1, 60)), int(rng.integers(1, 6))
        yield PointEstimation(
            K=K, K_a=K_a, tau=tau, tau_a=tau_a, n=n, d=d, sigma=rng.uniform(0.1, 3), beta=rng.uniform(0.2, 3) * n
        )


def argmin(function, setting):
    """The minimiser of a function of λ by golden section in λ/(c + λ), where it has one valley."""
    c, low, high, golden = setting.curvature, 0.0, 1 - 1e-12, (math.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if function(c * left / (1 - left)) < function(c * right / (1 - right)):
            high = right
        else:
            low = left
    return c * (low + high) / 2 / (1 - (low + high) / 2)


def level(function, setting):
    """Where a function that is quadratic in λ/(c + λ) is level, by bisection of its central difference."""
    c, low, high = setting.curvature, 0.01, 0.99

    def slope(share):
        up, down = share + 0.005, share - 0.005
        return function(c * up / (1 - up)) - function(c * down / (1 - down))

    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return c * low / (1 - low)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "attacked"])
def test_the_best_lambda_is_where_the_error_is_least(clean):
    tried = 0
    for setting in random_settings(100, clean):
        best = best_lambda(setting)
        assert coordinate_error(setting, best) == pytest.approx(posterior(setting).variance, rel=1e-12)
        if not 0.01 < best / (setting.curvature + best) < 0.99:
            continue  # too near an end for the search
        tried += 1
        assert level(lambda lambda_, s=setting: coordinate_error(s, lambda_), setting) == pytest.approx(best, rel=1e-6)
        beside = coordinate_error(setting, [0.99 * best, best, 1.01 * best])
        assert beside.argmin() == device_variance(setting, [0.99 * best, best, 1.01 * best]).argmin() == 1
    assert tried >= 50


def test_the_spread_is_least_at_the_best_lambda_only_without_adversaries():
    for setting in random_settings(50, clean=True):
        assert fairest_lambda(setting) == pytest.approx(best_lambda(setting), rel=1e-6)
    assert fairest_lambda(ATTACKED) == pytest.approx(1.3962, abs=5e-5)
    assert spread(ATTACKED, fairest_lambda(ATTACKED)) == pytest.approx(1.73972e-4, abs=5e-10)
    assert spread(ATTACKED, best_lambda(ATTACKED)) > 1.01 * spread(ATTACKED, fairest_lambda(ATTACKED))


def test_the_fairest_lambda_is_found_by_search_too():
    for setting in random_settings(20):
        found = argmin(lambda lambda_, s=setting: float(spread(s, lambda_)), setting)
        assert found == pytest.approx(fairest_lambda(setting), rel=1e-5)


def test_identical_clients_are_best_served_by_one_model():
    same = replace(CLEAN, tau=0.0)
    assert best_lambda(same) == fairest_lambda(same) == math.inf


def brute_force(setting, own, others):
    """Posterior of w_1 given its estimate and the mean of the others', by conditioning the joint Gaussian.

    The last K_a clients are malicious; the flat prior on θ is a very wide one.
    """
    wide, K = 1e8, setting.K
    taus = np.full(K, setting.tau**2)
    if setting.K_a:
        taus[K - setting.K_a :] = setting.tau_a**2
    covariance = wide + np.diag(taus)  # of w
    pick = np.zeros((2, K))
    pick[0, 0], pick[1, 1:] = 1, 1 / (K - 1)
    seen = pick @ (covariance + setting.noise * np.eye(K)) @ pick.T
    cross = covariance[0] @ pick.T
    gain = np.linalg.solve(seen, cross)
    return gain @ np.array([own, others]), covariance[0, 0] - gain @ cross


@pytest.mark.parametrize("setting", [CLEAN, ATTACKED, REGRESSION], ids=["clean", "attacked", "regression"])
def test_the_posterior_is_that_of_the_joint_gaussian_and_dittos_estimator(setting):
    found = posterior(setting)
    mean, variance = brute_force(setting, 1.3, -0.4)
    assert found.mean(1.3, -0.4) == pytest.approx(mean, abs=1e-6)  # the wide prior costs digits
    assert found.variance == pytest.approx(variance, abs=1e-6)
    a, b = mixing(setting, best_lambda(setting))
    assert found.own == pytest.approx(a, rel=1e-13)
    assert found.others == pytest.approx((setting.K - 1) * b, rel=1e-13)


def test_the_clean_posterior_variance_has_a_short_form():
    s2, tau2 = CLEAN.noise, CLEAN.tau**2
    assert posterior(CLEAN).variance == pytest.approx(s2 * (tau2 + s2 / CLEAN.K) / (tau2 + s2), rel=1e-14)


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        (replace(CLEAN, n=10**12), 0.0),
        (replace(CLEAN, tau=1e6), 0.0),
        (replace(CLEAN, tau=1e-8), math.inf),
        (replace(ATTACKED, tau_a=1e6), 0.0),
    ],
    ids=["many samples", "unlike clients", "like clients", "wild adversaries"],
)
def test_the_best_lambda_has_the_right_limits(setting, limit):
    best = best_lambda(setting)
    assert best > 1e10 if limit == math.inf else best < 1e-8


def test_adversaries_make_a_global_model_wrong_even_on_identical_clients():
    same = replace(ATTACKED, tau=0.0)
    assert best_lambda(same) == pytest.approx(2.56, rel=1e-14)
    assert coordinate_error(same, 2.56) < coordinate_error(same, math.inf)


def test_more_and_wilder_adversaries_ask_for_a_smaller_lambda_and_cost_more():
    more = [replace(ATTACKED, K_a=count) for count in range(16)]
    wilder = [replace(ATTACKED, tau_a=tau) for tau in (0.1, 0.2, 0.5, 1.0, 5.0)]
    for settings in (more, wilder):
        best = [best_lambda(setting) for setting in settings]
        assert (np.diff(best) < 0).all()
        variances = [posterior(setting).variance for setting in settings]
        assert (np.diff(variances) > 0).all()
        np.testing.assert_allclose(
            [device_variance(setting, lam) for setting, lam in zip(settings, best, strict=True)],
            2 * np.square(variances),
            rtol=1e-12,
        )


def test_the_best_lambda_depends_on_neither_beta_nor_the_dimension():
    assert {best_lambda(replace(REGRESSION, beta=beta, d=d)) for beta in (None, 1.0, 77.0) for d in (1, 9)} == {
        best_lambda(REGRESSION)
    }


def test_errors_of_two_clients_are_one_where_both_take_a_global_model_of_many():
    wide = PointEstimation(K=1000, K_a=999, sigma=0.1, n=10, tau=1e-9, tau_a=50.0)
    assert coordinate_covariance(wide, math.inf) == pytest.approx(coordinate_error(wide, math.inf), rel=1e-9)


def test_the_spread_given_the_data_is_that_of_shifted_gaussians():
    rng = np.random.default_rng(3)
    shifts, variance = rng.normal(0, 0.7, (4000, 3)), 0.4
    drawn = [((shifts + rng.normal(0, math.sqrt(variance), shifts.shape)) ** 2).sum(axis=1).var() for _ in range(60)]
    assert np.mean(drawn) == pytest.approx(conditional_spread(shifts, variance), rel=0.02)
    assert conditional_spread(0 * shifts, variance) == pytest.approx(2 * 3 * variance**2)


@pytest.mark.parametrize(
    "changes",
    [
        {"K": 1},
        {"K_a": 8, "tau_a": 1.0},
        {"K_a": -1},
        {"K_a": 1},
        {"n": 0},
        {"d": 0},
        {"sigma": 0.0},
        {"sigma": math.nan},
        {"beta": 0.0},
        {"tau": -1.0},
        {"tau_a": math.inf, "K_a": 1},
    ],
)
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(ConfigError, match="give"):
        replace(CLEAN, **changes)
