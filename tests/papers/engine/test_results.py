import json
import math
from dataclasses import replace

import pytest
from holdfast.papers.fingerprint import Fingerprint, fingerprint

from holdfast.errors import CheckpointError, ConfigError, DataError
from holdfast.papers.engine.execute import Outcome
from holdfast.papers.engine.experiment import Claim, Printed, Verdict
from holdfast.papers.engine.results import (
    Measured,
    Metric,
    Results,
    collect,
    deviation,
    judge,
    read_results,
    stale,
    to_json,
    write_results,
)
from tests.papers.toy import toy_experiment

VALUES = {("toy/a", 0): 1.0, ("toy/a", 1): 4.0, ("toy/b", 0): 2.0, ("toy/b", 1): 5.0}


def outcomes(values=VALUES):
    return [Outcome(name, seed, {"score": value}, 3.0) for (name, seed), value in values.items()]


def make(experiment, found, scale="cpu"):
    measured = Results(
        experiment=experiment.name,
        scale=scale,
        commit="abc",
        date="2026-01-02T03:04:05+00:00",
        seeds=(0, 1),
        cells=collect(experiment, experiment.cells_at(scale), found),
        claims=(),
        fingerprint=fingerprint(experiment, scale),
        environment={"torch": "2"},
    )
    return judge(experiment, measured)


@pytest.fixture
def experiment(tmp_path):
    return toy_experiment(tmp_path)


@pytest.fixture
def results(experiment):
    return make(experiment, outcomes())


def test_the_spread_is_the_sample_deviation_unless_population_is_asked_for(tmp_path, results):
    assert results.mean("toy/a", "score") == 2.5
    assert results.spread("toy/a", "score") == pytest.approx(math.sqrt(4.5))
    population = make(toy_experiment(tmp_path, spread="population"), outcomes())
    assert population.spread("toy/a", "score") == pytest.approx(1.5)


def test_one_value_has_no_sample_deviation():
    assert deviation([3.0]) is None
    assert deviation([3.0], "population") == 0


def test_ours_stands_beside_theirs_where_they_printed_something(results):
    assert results.values("toy/a", "score") == (1.0, 4.0)
    assert results.printed("toy/a", "score") == Printed(1.5, 0.5)
    assert results.printed("toy/b", "score") is None


def test_claims_hold_fail_or_are_not_checked(results):
    assert [claim.holds for claim in results.claims] == [True, False, None]
    assert [claim.evidence for claim in results.claims[:2]] == ["by 1.0", "in 0 of 2 seeds"]
    assert results.claims[2].evidence == "not checked at this scale, only at paper"
    assert results.held == 1


def test_a_claim_about_a_cell_that_failed_is_not_checked(experiment):
    found = [*outcomes()[:3], Outcome("toy/b", 1, None, 1.0, error="no data")]
    results = make(experiment, found)
    assert not results.complete
    assert [claim.holds for claim in results.claims] == [None, None, None]
    assert results.claims[0].evidence == "not checked: toy/b didn't finish"
    assert results.cells[1].errors == {1: "no data"}
    assert results.cells[1].metrics["score"].ours.values == (2.0,)


def test_seeds_that_disagree_about_the_metrics_are_an_error(experiment):
    found = [*outcomes()[:3], Outcome("toy/b", 1, {"score": 1.0, "extra": 2.0}, 1.0)]
    assert "only some seeds gave extra" in make(experiment, found).cells[1].errors[1]


@pytest.mark.parametrize(
    ("cell", "metric", "hint"), [("toys/a", "score", "did you mean 'toy/a'"), ("toy/a", "scor", "did you mean 'score'")]
)
def test_a_claim_with_a_misspelt_name_is_refused_rather_than_not_checked(tmp_path, cell, metric, hint):
    claim = Claim("wrong", lambda results: Verdict(results.mean(cell, metric) > 0, ""))
    with pytest.raises(ConfigError, match=hint):
        make(toy_experiment(tmp_path, claims=(claim,)), outcomes())


def test_the_file_has_exactly_these_keys(results, tmp_path):
    file = write_results(results, tmp_path / "results")
    assert file == tmp_path / "results" / "toys" / "table1.cpu.json"
    stored = json.loads(file.read_text())
    keys = ["experiment", "scale", "commit", "date", "seeds", "cells", "claims", "fingerprint", "environment"]
    assert list(stored) == keys
    assert stored["cells"][0] == {
        "name": "toy/a",
        "metrics": {
            "score": {
                "ours": {"mean": 2.5, "spread": math.sqrt(4.5), "values": [1.0, 4.0]},
                "printed": {"mean": 1.5, "spread": 0.5},
            }
        },
        "seconds": 3.0,
    }
    assert stored["cells"][1]["metrics"]["score"]["printed"] is None
    assert stored["claims"][1] == {"name": "a beats b", "holds": False, "evidence": "in 0 of 2 seeds"}
    assert stored["claims"][2]["holds"] is None


def test_what_was_written_is_read(results, experiment, tmp_path):
    assert read_results(write_results(results, tmp_path)) == results
    incomplete = make(experiment, [*outcomes()[:3], Outcome("toy/b", 1, None, 1.0, error="no data")])
    assert read_results(write_results(incomplete, tmp_path)) == incomplete


def test_a_number_that_was_derived_from_all_seeds_is_read(results, tmp_path):
    first, *others = results.cells
    derived = replace(first, metrics={**first.metrics, "rate": Metric(Measured.of([0.5]))})
    changed = replace(results, cells=(derived, *others))
    assert read_results(write_results(changed, tmp_path)) == changed


def damaged(results, change):
    stored = json.loads(json.dumps(to_json(results)))
    change(stored)
    return json.dumps(stored)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda stored: stored.pop("seeds"), "'seeds' is missing"),
        (lambda stored: stored.update(extra=1), "'extra' is unknown"),
        (lambda stored: stored.update(scale="huge"), "no scale 'huge'"),
        (lambda stored: stored["cells"][0].pop("seconds"), "'seconds' is missing"),
        (lambda stored: stored["cells"][0]["metrics"]["score"]["ours"].update(mean="2"), "'2' is no finite number"),
        (lambda stored: stored["cells"][0]["metrics"]["score"]["ours"].update(values=[1]), "1 values of score"),
        (lambda stored: stored["claims"][0].update(holds="yes"), "holds is 'yes'"),
        (lambda stored: stored.update(cells=3), "not iterable"),
        (lambda stored: stored.update(commit=3), "3 is no text"),
    ],
)
def test_a_file_that_is_not_a_results_file_is_refused_in_a_sentence(results, tmp_path, change, complaint):
    file = tmp_path / "odd.json"
    file.write_text(damaged(results, change))
    with pytest.raises(DataError, match=complaint):
        read_results(file)


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_a_file_without_an_object_is_refused(tmp_path, content):
    file = tmp_path / "odd.json"
    file.write_text(content)
    with pytest.raises(DataError, match="not a results file"):
        read_results(file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="can't be read"):
        read_results(tmp_path / "none.json")


def test_a_write_that_fails_leaves_the_old_file(results, tmp_path, monkeypatch):
    file = write_results(results, tmp_path)
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        write_results(results, tmp_path)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_results_are_stale_once_the_declaration_or_the_code_changed(experiment, results, tmp_path):
    assert stale(experiment, results) is None
    assert stale(toy_experiment(tmp_path, claims=()), results) == "declaration changed"
    older = Fingerprint(results.fingerprint.declaration, {**results.fingerprint.sources, "errors": "older"})
    from dataclasses import replace

    assert stale(experiment, replace(results, fingerprint=older)) == "errors changed since"
