import math
from dataclasses import replace

import pytest

from holdfast.errors import ConfigError
from holdfast.papers.engine.execute import CellOutcome
from holdfast.papers.engine.experiment import Claim, Printed, Verdict
from holdfast.papers.engine.results import deviation, judge
from tests.papers.toy import measured, toy_experiment

VALUES = {("toy/a", 0): 1.0, ("toy/a", 1): 4.0, ("toy/b", 0): 2.0, ("toy/b", 1): 5.0}
ORIGIN = {"commit": "abc", "date": "2026-01-02T03:04:05+00:00", "torch": "2"}


def outcomes(values=VALUES):
    return [CellOutcome(name, seed, {"score": value}, 3.0, origin=ORIGIN) for (name, seed), value in values.items()]


@pytest.fixture
def experiment(tmp_path):
    return toy_experiment(tmp_path)


@pytest.fixture
def results(experiment):
    return measured(experiment, outcomes())


def test_the_spread_is_the_sample_deviation_unless_population_is_asked_for(tmp_path, results):
    assert results.mean("toy/a", "score") == 2.5
    assert results.spread("toy/a", "score") == pytest.approx(math.sqrt(4.5))
    population = measured(toy_experiment(tmp_path, spread="population"), outcomes())
    assert population.spread("toy/a", "score") == pytest.approx(1.5)


def test_one_value_has_no_sample_deviation():
    assert deviation([3.0]) is None
    assert deviation([3.0], "population") == 0


def test_ours_stands_beside_theirs_where_they_printed_something(results):
    assert results.values("toy/a", "score") == (1.0, 4.0)
    assert results.by_seed("toy/a", "score") == {0: 1.0, 1: 4.0}
    assert results.printed("toy/a", "score") == Printed(1.5, 0.5)
    assert results.printed("toy/b", "score") is None


def test_columns_are_what_stands_before_the_slash_once_and_in_order(results):
    assert results.columns == ["toy"]
    cells = tuple(replace(results.cells[0], name=name) for name in ("b/x", "a/x", "b/y"))
    assert replace(results, cells=cells).columns == ["b", "a"]


def test_claims_hold_fail_or_are_not_judged(results):
    assert [claim.verdict for claim in results.claims] == ["holds", "fails", "not judged"]
    assert [claim.evidence for claim in results.claims[:2]] == ["by 1.0", "in 0 of 2 seeds"]
    assert results.claims[2].evidence == "only at scale paper"
    assert [results.count(word) for word in ("holds", "fails", "not judged")] == [1, 1, 1]


def test_a_claim_that_the_numbers_do_not_decide_is_not_judged_and_says_why(tmp_path):
    claim = Claim("close", lambda results: Verdict(None, "within the noise: 0.1 ± 0.4"))
    (judged,) = measured(toy_experiment(tmp_path, claims=(claim,)), outcomes()).claims
    assert (judged.verdict, judged.evidence) == ("not judged", "within the noise: 0.1 ± 0.4")


def test_a_claim_about_a_cell_that_failed_is_not_judged(experiment):
    results = measured(
        experiment, [*outcomes()[:3], CellOutcome("toy/b", 1, None, 1.0, error="no data", origin=ORIGIN)]
    )
    assert results.failed and not results.complete
    assert [claim.verdict for claim in results.claims] == ["not judged"] * 3
    assert results.claims[0].evidence == "toy/b didn't finish"
    assert results.cells[1].errors == {1: "no data"}
    assert results.cells[1].metrics["score"].ours.values == (2.0,)


def test_a_claim_whose_control_was_never_measured_is_not_judged(experiment):
    results = measured(experiment, outcomes()[:2])
    assert not results.failed and not results.complete
    assert {claim.verdict for claim in results.claims} == {"not judged"}
    assert results.claims[0].evidence == "toy/b is not measured"


def test_a_claim_about_a_cell_of_an_older_version_is_not_judged(experiment, results):
    older = replace(results, cells=(results.cells[0], replace(results.cells[1], version=1, wanted=2)))
    judged = judge(experiment, older)
    assert judged.claims[0].evidence == "toy/b was measured with version 1, today's is 2"
    assert {claim.verdict for claim in judged.claims} == {"not judged"}


def test_seeds_that_disagree_about_the_metrics_are_an_error(experiment):
    found = [*outcomes()[:3], CellOutcome("toy/b", 1, {"score": 1.0, "extra": 2.0}, 1.0, origin=ORIGIN)]
    assert "only some seeds gave extra" in measured(experiment, found).cells[1].errors[1]


@pytest.mark.parametrize(
    ("cell", "metric", "hint"), [("toys/a", "score", "did you mean 'toy/a'"), ("toy/a", "scor", "did you mean 'score'")]
)
def test_a_claim_with_a_misspelt_name_is_refused_rather_than_not_judged(tmp_path, cell, metric, hint):
    claim = Claim("wrong", lambda results: Verdict(results.mean(cell, metric) > 0, ""))
    with pytest.raises(ConfigError, match=hint):
        measured(toy_experiment(tmp_path, claims=(claim,)), outcomes())
