"""Every method has its ranges, and what they draw is something that the method takes."""

import dataclasses

import numpy as np
import pytest

from holdfast.methods import METHODS
from holdfast.ranges import RANGES, Range, draw_trial


def test_every_method_has_an_entry_and_no_other():
    assert set(RANGES) == set(METHODS)


@pytest.mark.parametrize("method", sorted(RANGES))
def test_what_is_drawn_are_options_that_the_method_accepts(method):
    options = {field.name for field in dataclasses.fields(METHODS[method])}
    for trial in range(6):
        drawn = draw_trial(method, trial, 0.01).options
        assert set(drawn) <= options
        METHODS[method](**drawn)


@pytest.mark.parametrize("method", sorted(RANGES))
def test_a_range_holds_the_default_or_stands_where_the_default_is_an_end(method):
    defaults = METHODS[method]()
    for name, where in RANGES[method].items():
        if isinstance(where, Range) and where.scale == "even":
            default = getattr(defaults, name)
            # "auto" finds the value itself; trials try fixed ones.
            assert default == "auto" or where.low <= default <= where.high or where.whole, name


def test_the_first_trial_has_the_defaults():
    draw = draw_trial("jtt", 0, 0.01)
    assert not draw.options and not draw.training


def test_training_is_drawn_alike_for_all_methods_and_anew_for_each_trial():
    draws = [draw_trial(method, trial, 0.01).training for trial in (1, 2) for method in ("erm", "spare")]
    assert draws[0] == draws[1] != draws[2] == draws[3]


def test_draws_stay_inside_and_reach_both_halves_of_a_logarithmic_range():
    rng, where = np.random.default_rng(0), Range(0.01, 1.0, "log")
    values = [where.draw(rng) for _ in range(400)]
    assert min(values) >= 0.01 and max(values) <= 1.0
    assert 0.4 < np.mean([value < 0.1 for value in values]) < 0.6
