from dataclasses import replace

import pytest

from holdfast.papers.engine.execute import CellOutcome
from holdfast.papers.engine.recheck import candidates, compare
from holdfast.papers.engine.store import Check, Store
from tests.papers.engine.test_results import ORIGIN, outcomes
from tests.papers.toy import toy_experiment


@pytest.fixture
def experiment(tmp_path):
    return toy_experiment(tmp_path, scales=("smoke", "cpu"))


@pytest.fixture
def store(tmp_path, experiment):
    kept = Store(tmp_path / "results", [experiment], "cpu")
    kept.put(experiment, (0, 1), outcomes())
    kept.write()
    return kept


def check(seed, date="2026-06-01T00:00:00+00:00"):
    return Check(date, "abc", seed, 0.0, "score")


def test_what_was_looked_at_longest_ago_comes_first_and_each_seed_in_turn(store, experiment):
    first = store.entry(experiment.cells_at("cpu")[0])
    store.replace_entry(replace(first, checks=(check(0),)))
    store.write()
    found = candidates(store.folder, [[experiment]])
    assert [(each.entry.name, each.seed) for each in found] == [("toy/b", 0), ("toy/a", 1)]


def test_values_of_an_older_version_are_not_checked(store, experiment):
    cells = experiment.cells("cpu")
    newer = replace(experiment, cells=lambda scale: (cells[0], replace(cells[1], version=2)))
    assert [each.entry.name for each in candidates(store.folder, [[newer]])] == ["toy/a"]


def test_the_farthest_metric_decides_and_clocks_do_not(store, experiment):
    entry = replace(
        store.entry(experiment.cells_at("cpu")[0]),
        values={"score": (1.0, 4.0), "rate": (2.0, 2.0), "seconds": (1.0, 9.0)},
    )
    metrics = {"score": 4.0, "rate": 2.5, "seconds": 100.0, "new": 7.0}
    found = compare(entry, metrics, CellOutcome("toy/a", 1, metrics, 1.0, origin=ORIGIN))
    assert (found.metric, found.farthest) == ("rate", pytest.approx(0.2))
    same = compare(entry, {**metrics, "rate": 2.0}, CellOutcome("toy/a", 1, metrics, 1.0, origin=ORIGIN))
    assert same.farthest == 0.0


def test_a_metric_that_is_gone_is_wholly_different(store, experiment):
    entry = store.entry(experiment.cells_at("cpu")[0])
    found = compare(entry, {"other": 1.0}, CellOutcome("toy/a", 0, {"other": 1.0}, 1.0, origin=ORIGIN))
    assert (found.metric, found.farthest) == ("score", 1.0)
