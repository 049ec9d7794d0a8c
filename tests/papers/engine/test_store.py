import json
from dataclasses import replace

import pytest

from holdfast.errors import CheckpointError, DataError, MissingDependencyError
from holdfast.papers.engine.execute import CellOutcome
from holdfast.papers.engine.kinds import key_of
from holdfast.papers.engine.store import Store, read_record, results_file, to_json
from tests.papers.engine.test_results import ORIGIN, outcomes
from tests.papers.toy import toy_experiment

LATER = {**ORIGIN, "date": "2026-02-03T00:00:00+00:00", "commit": "def"}


@pytest.fixture
def experiment(tmp_path):
    return toy_experiment(tmp_path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def store(folder, experiment):
    kept = Store(folder, [experiment], "cpu")
    kept.put(experiment, (0, 1), outcomes())
    kept.write()
    return kept


def reopened(store):
    return Store(store.folder, [*store.experiments.values()], store.scale)


def test_the_file_has_exactly_these_keys(store, experiment, folder):
    file = results_file(folder, "toys/table1", "cpu")
    assert file == folder / "toys" / "table1.cpu.json"
    stored = json.loads(file.read_text())
    assert list(stored) == ["experiment", "scale", "seeds", "measured", "claims", "cells"]
    assert stored["measured"] == [ORIGIN]
    assert stored["cells"][0] == {
        "name": "toy/a",
        "key": key_of(experiment.cells_at("cpu")[0]),
        "version": 1,
        "from": 0,
        "seconds": 3.0,
        "seeds": [0, 1],
        "values": {"score": [1.0, 4.0]},
    }
    assert stored["claims"][1] == {"name": "a beats b", "verdict": "fails", "evidence": "in 0 of 2 seeds"}


def test_what_was_written_is_read(store, experiment):
    again = reopened(store)
    assert again.records == store.records
    assert again.results(experiment) == store.results(experiment)


def test_writing_the_same_again_touches_no_file(store):
    assert reopened(store).write() == []


def test_a_value_that_two_tables_show_is_stored_once(tmp_path, folder, experiment):
    figure = toy_experiment(tmp_path, name="toys/figure1", claims=experiment.claims[:1])
    store = Store(folder, [experiment, figure], "cpu")
    results = store.put(figure, (0, 1), outcomes())
    store.write()
    assert results.claims[0].verdict == "holds"
    assert json.loads(results_file(folder, "toys/figure1", "cpu").read_text())["cells"] == []
    again = Store(folder, [experiment, figure], "cpu")
    assert again.results(figure) == results
    assert again.results(experiment).values("toy/b", "score") == (2.0, 5.0)


def test_claims_are_judged_anew_from_stored_values(store, tmp_path):
    reworded = replace(toy_experiment(tmp_path).claims[0], name="b is the better one")
    changed = toy_experiment(tmp_path, claims=(reworded,))
    again = Store(store.folder, [changed], "cpu")
    again.judge()
    again.write()
    (claim,) = read_record(results_file(store.folder, "toys/table1", "cpu")).claims
    assert (claim.name, claim.verdict, claim.evidence) == ("b is the better one", "holds", "by 1.0")


def raised(experiment, versions):
    cells = experiment.cells("cpu")
    return replace(
        experiment,
        cells=lambda scale: tuple(replace(c, version=v) for c, v in zip(cells, versions, strict=True)),
    )


def test_values_of_an_older_version_are_shown_and_judge_nothing(store, experiment):
    newer = raised(experiment, (1, 2))
    again = Store(store.folder, [newer], "cpu")
    again.judge()
    results = again.results(newer)
    assert results.cells[1].metrics["score"].ours.values == (2.0, 5.0)
    assert [cell.version for cell in results.cells] == [1, 1]
    assert "measured with version 1, today's is 2" in again.records["toys/table1"].claims[0].evidence


def test_a_new_version_forgets_the_old_values_of_its_cell_only(store, experiment):
    newer = raised(experiment, (1, 2))
    again = Store(store.folder, [newer], "cpu")
    results = again.put(newer, (0, 1), [CellOutcome("toy/b", 0, {"score": 7.0}, 1.0, origin=LATER)])
    assert results.values("toy/b", "score") == (7.0,)
    assert results.values("toy/a", "score") == (1.0, 4.0)
    assert [cell.origin["commit"] for cell in results.cells] == ["abc", "def"]


def test_more_seeds_are_added_to_those_that_are_there(store, experiment):
    results = store.put(experiment, (0, 1, 2), [CellOutcome("toy/a", 2, {"score": 9.0}, 6.0, origin=LATER)])
    assert results.by_seed("toy/a", "score") == {0: 1.0, 1: 4.0, 2: 9.0}
    assert results.cells[0].seconds == 4.0


def test_a_failure_does_not_take_the_place_of_a_measured_value(store, experiment):
    results = store.put(experiment, (0, 1), [CellOutcome("toy/b", 1, None, 1.0, error="no data", origin=LATER)])
    assert results.values("toy/b", "score") == (2.0, 5.0)
    assert not results.failed


def test_a_cell_that_is_no_longer_declared_is_dropped_with_the_next_run(store, tmp_path):
    fewer = replace(toy_experiment(tmp_path), claims=())
    fewer = replace(fewer, cells=lambda scale, kept=fewer.cells: kept(scale)[:1])
    again = Store(store.folder, [fewer], "cpu")
    again.put(fewer, (0, 1), outcomes()[:2])
    assert [entry.name for entry in again.records["toys/table1"].cells] == ["toy/a"]


def test_an_experiment_of_which_nothing_is_known_has_no_results(tmp_path, experiment):
    assert Store(tmp_path, [experiment], "cpu").results(experiment) is None


def test_a_figure_is_drawn_once_everything_is_measured(tmp_path, folder):
    experiment = toy_experiment(tmp_path, figure="tests.papers.toy:drawn")
    store = Store(folder, [experiment], "cpu")
    store.put(experiment, (0, 1), outcomes()[:2])
    store.write()
    assert not (folder / "toys" / "table1.cpu.svg").exists()
    store.put(experiment, (0, 1), outcomes()[2:])
    store.write()
    assert (folder / "toys" / "table1.cpu.svg").read_text() == "<svg>3.5</svg>"


def needs_more(results):
    raise MissingDependencyError("figures need matplotlib; pip install 'holdfast[figures]'")


def test_without_what_draws_figures_the_results_are_kept_and_the_extra_is_named(tmp_path, folder, caplog):
    experiment = toy_experiment(tmp_path, figure="tests.papers.engine.test_store:needs_more")
    store = Store(folder, [experiment], "cpu")
    store.put(experiment, (0, 1), outcomes())
    assert store.write() == [results_file(folder, "toys/table1", "cpu")]
    assert "holdfast[figures]" in caplog.text


def damaged(store, change):
    stored = json.loads(json.dumps(to_json(store.records["toys/table1"])))
    change(stored)
    return json.dumps(stored)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda stored: stored.pop("seeds"), "'seeds' is missing"),
        (lambda stored: stored.update(extra=1), "'extra' is unknown"),
        (lambda stored: stored.update(scale="huge"), "no scale 'huge'"),
        (lambda stored: stored["cells"][0].pop("seconds"), "'seconds' is missing"),
        (lambda stored: stored["cells"][0]["values"].update(score=[1, "2"]), "'2' isn't a finite number"),
        (lambda stored: stored["cells"][0]["values"].update(score=[1]), "1 values of score for 2 seeds"),
        (lambda stored: stored["cells"][0].update({"from": 3}), "list index out of range"),
        (lambda stored: stored["claims"][0].update(verdict="yes"), "no verdict 'yes'"),
        (lambda stored: stored.update(cells=3), "not iterable"),
        (lambda stored: stored["measured"][0].update(date=3), "3 isn.t text"),
    ],
)
def test_a_file_that_is_not_a_results_file_is_refused_in_a_sentence(store, tmp_path, change, complaint):
    file = tmp_path / "odd.json"
    file.write_text(damaged(store, change))
    with pytest.raises(DataError, match=complaint):
        read_record(file)


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_a_file_without_an_object_is_refused(tmp_path, content):
    file = tmp_path / "odd.json"
    file.write_text(content)
    with pytest.raises(DataError, match="not a results file"):
        read_record(file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="can't be read"):
        read_record(tmp_path / "none.json")


def test_a_write_that_fails_leaves_the_old_file(store, experiment, monkeypatch):
    file = results_file(store.folder, "toys/table1", "cpu")
    before = file.read_bytes()
    store.put(experiment, (0, 1), [CellOutcome("toy/a", 0, {"score": 8.0}, 1.0, origin=LATER)])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        store.write()
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]
