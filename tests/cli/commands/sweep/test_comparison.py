"""The trial that a method is judged by is chosen on validation scores alone, and differences are taken seed by seed."""

import pytest

from holdfast.cli.commands.sweep.comparison import best_trial, rows_of
from holdfast.papers.engine.execute import CellOutcome


def numbers(score, worst, verdict=0.0, **checks):
    named = {f"check {name}": value for name, value in checks.items()}
    return {"score": score, "worst_group": worst, "accuracy": 0.9, "verdict": verdict, "cpu_seconds": 2.0, **named}


def outcome(method, trial, seed, metrics, error=None):
    return CellOutcome(f"worst_group/{method}/{trial}", seed, metrics, 1.0, error=error)


SETTINGS = {(method, trial): f"--{method} {trial}" for method in ("erm", "jtt") for trial in (0, 1)}


def rows(*outcomes, seeds=(0, 1)):
    return {row.method: row for row in rows_of(outcomes, SETTINGS, seeds, "worst_group")}


def test_the_test_set_does_not_choose_the_trial():
    made = rows(
        outcome("erm", 0, 0, numbers(0.5, 0.9)),
        outcome("erm", 1, 0, numbers(0.6, 0.1)),
        seeds=(0,),
    )
    assert made["erm"].trial == 1
    assert made["erm"].worst == pytest.approx(0.1)


def test_differences_are_taken_within_seeds():
    made = rows(
        outcome("erm", 0, 0, numbers(0.5, 0.2)),
        outcome("erm", 0, 1, numbers(0.5, 0.6)),
        outcome("jtt", 0, 0, numbers(0.5, 0.3)),
        outcome("jtt", 0, 1, numbers(0.5, 0.7)),
    )
    row = made["jtt"]
    assert row.gain == pytest.approx(0.1)
    assert row.low == pytest.approx(0.1) and row.high == pytest.approx(0.1)  # every seed gains the same
    assert made["erm"].gain is None


def test_one_seed_has_no_interval():
    made = rows(outcome("erm", 0, 0, numbers(0.5, 0.2)), outcome("jtt", 0, 0, numbers(0.5, 0.3)), seeds=(0,))
    assert made["jtt"].low is None and made["jtt"].high is None


def test_verdicts_are_counted_and_checks_that_spoke_are_named():
    made = rows(
        outcome("erm", 0, 0, numbers(0.5, 0.2, 2.0, chance=2.0, purity=0.0)),
        outcome("erm", 0, 1, numbers(0.5, 0.2)),
    )
    assert made["erm"].verdicts == (1, 0, 1)
    assert made["erm"].concerns == ("chance",)


def test_what_failed_is_said_and_does_not_hide_what_finished():
    made = rows(
        outcome("erm", 0, 0, numbers(0.5, 0.2)),
        outcome("jtt", 0, 0, None, "it died"),
        outcome("jtt", 1, 0, numbers(0.4, 0.4)),
        seeds=(0,),
    )
    assert made["jtt"].error == "it died"
    assert made["jtt"].trial == 1
    only = rows(outcome("erm", 0, 0, numbers(0.5, 0.2)), outcome("jtt", 0, 0, None, "it died"), seeds=(0,))
    assert only["jtt"].seeds == 0 and only["jtt"].error == "it died"


def test_a_trial_with_fewer_seeds_can_not_win_by_a_lucky_one():
    trials = {0: {0: {"score": 0.5}, 1: {"score": 0.5}}, 1: {0: {"score": 0.9}}}
    assert best_trial(trials, 2) == 0
    assert best_trial({}, 2) is None
