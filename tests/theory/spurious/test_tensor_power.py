import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.theory.spurious import hitting_time, hitting_time_bound, tensor_power


def test_the_hitting_time_is_the_first_step_at_the_target():
    path = tensor_power(0.05, 0.3, 200)
    for target in (0.05, 0.1, 1.0, 7.0):
        steps = hitting_time(0.05, 0.3, target)
        assert path[steps] >= target
        assert steps == 0 or path[steps - 1] < target


@pytest.mark.parametrize("start", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("growth", [1e-2, 0.1, 1.0])
def test_time_times_growth_times_start_is_about_one(start, growth):
    assert 0.9 < growth * start * hitting_time(start, growth, 1.0) < 1.2 + 5 * growth


@pytest.mark.parametrize("start", [1e-2, 1e-3])
def test_when_the_faster_feature_arrives_the_slower_one_has_hardly_moved(start):
    steps = hitting_time(start, 0.1, 1.0)
    slower = tensor_power(2 * start, 0.1 / 20, steps)
    assert slower[-1] < 1.2 * slower[0]


@pytest.mark.parametrize("target", [0.5, 3.0, 50.0])
@pytest.mark.parametrize("start", [0.3, 1e-2])
@pytest.mark.parametrize(("least", "most"), [(0.05, 0.05), (0.05, 0.2), (1.0, 3.0)])
def test_any_sequence_between_two_growths_has_arrived_by_the_bound(target, start, least, most):
    bound = hitting_time_bound(start, least, most, target)
    rng = np.random.default_rng(0)
    for growths in (lambda: least, lambda: most, lambda: rng.uniform(least, most), lambda: rng.choice([least, most])):
        z, steps = start, 0
        while z < target:
            z += growths() * z**2
            steps += 1
        assert steps <= bound


def test_the_bound_is_the_papers_formula():
    assert hitting_time_bound(0.1, 0.5, 2.0, 1.0) == pytest.approx(3 / 0.05 + 32 * 4)
    assert hitting_time_bound(0.1, 0.5, 2.0, 0.05) == 0


@pytest.mark.parametrize("call", [lambda: hitting_time(0.0, 1.0, 1.0), lambda: hitting_time_bound(1.0, -1.0, 1.0, 2.0)])
def test_a_start_that_never_takes_off_is_refused(call):
    with pytest.raises(ConfigError, match="from above 0"):
        call()
