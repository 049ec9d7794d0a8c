import math
from dataclasses import replace

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.theory.ditto import best_lambda, device_variance, error, simulate, spread
from tests.theory.ditto.test_closed_form import ATTACKED, CLEAN, REGRESSION


@pytest.mark.parametrize("setting", [CLEAN, ATTACKED, REGRESSION], ids=["clean", "attacked", "regression"])
def test_simulation_and_closed_forms_agree_within_three_standard_errors(setting):
    lambdas = [0, 0.4, 1, best_lambda(setting), 3, 10, math.inf]
    found = simulate(setting, lambdas, 200_000, seed=0)
    assert np.abs((found.error - error(setting, lambdas)) / found.error_se).max() < 3
    assert np.abs((found.spread - spread(setting, lambdas)) / found.spread_se).max() < 3
    np.testing.assert_allclose(found.device_variance, device_variance(setting, lambdas), rtol=0.02)
    assert found.error_se.max() < 0.005 * found.error.max()


def test_the_measured_spread_is_least_beside_the_theorem_under_attack():
    fair = simulate(ATTACKED, [1.185, 1.396, 1.65], 200_000, seed=1)
    assert fair.spread.argmin() == 1
    assert fair.device_variance.argmin() == 0


def test_estimates_are_distributed_as_means_of_samples():
    """The shortcut of the simulation against samples drawn one by one."""
    rng, trials, setting = np.random.default_rng(5), 20_000, ATTACKED
    taus = np.where(np.arange(setting.K) < setting.K_a, setting.tau_a, setting.tau)
    truth = taus * rng.standard_normal((trials, setting.K))
    seen = truth[..., None] + setting.sigma * rng.standard_normal((trials, setting.K, setting.n))
    local = seen.mean(axis=-1)
    personal = (local + 3 * local.mean(axis=1, keepdims=True)) / 4
    squared = ((personal - truth) ** 2)[:, setting.K_a :]
    by_trial = squared.mean(axis=1)
    assert by_trial.mean() == pytest.approx(error(setting, 3), abs=3 * by_trial.std() / math.sqrt(trials))


def test_a_seed_decides_the_draws_and_other_lambdas_do_not():
    one, two = simulate(CLEAN, [1.0], 12_000, seed=7), simulate(CLEAN, [5.0, 1.0], 12_000, seed=7)
    assert one.error[0] == two.error[1]
    assert one.error[0] != simulate(CLEAN, [1.0], 12_000, seed=8).error[0]


def test_the_local_model_does_not_see_the_adversaries():
    wild = simulate(replace(ATTACKED, tau_a=100.0), [0.0, 1.0], 5_000, seed=0)
    tame = simulate(ATTACKED, [0.0, 1.0], 5_000, seed=0)
    assert wild.error[0] == tame.error[0]
    assert wild.error[1] > 100 * tame.error[1]


def test_one_trial_has_no_standard_error():
    with pytest.raises(ConfigError, match="at least 2"):
        simulate(CLEAN, [1.0], 1, seed=0)
