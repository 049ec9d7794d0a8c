"""What a document's scale needs: counted by hand, shared cells once, and no kind of cell forgotten."""

import runpy
from pathlib import Path

import pytest

from holdfast.cli.commands.reproduce import experiments_to_run, main
from holdfast.errors import ConfigError
from holdfast.papers.engine.catalog import PAPERS, experiments_of
from holdfast.papers.engine.estimate import TERAFLOPS, need_of, needs, network_costs
from holdfast.papers.engine.experiment import Cell, Experiment

_TRAINING = {
    "data": {"name": "cmnist5"},
    "model": {"name": "lenet5"},
    "method": "erm",
    "options": {},
    "training": {"epochs": 2, "batch_size": 10},
}
_ROUNDS = {"rounds": 7, "cohort": 3, "local_steps": 5, "batch_size": 4}


def _experiment(name: str, *cells: Cell) -> Experiment:
    return Experiment(name=name, title="", source="", cells=lambda scale: cells, seeds=(0, 1))


def test_training_goes_through_the_training_set_each_epoch_and_forward_through_the_others():
    need, cost = need_of(Cell("a/b", "train", _TRAINING)), network_costs()["lenet5"]
    assert need.flop == pytest.approx(2 * (48_000 + 22_000 / 3) * cost.flop)
    assert need.memory == pytest.approx(16 * 61_581 + 10 * cost.activation_bytes)
    twice = need_of(Cell("a/b", "train", {**_TRAINING, "method": "jtt"}))
    assert twice.flop == pytest.approx(2 * need.flop)


def test_a_federation_is_trained_once_for_the_shared_model_and_once_for_each_one_alongside():
    settings = {"data": {"name": "vehicle"}, "model": "svm", "rounds": _ROUNDS}
    alongside = [{"name": "local"}, {"name": "ditto", "lambda_": 1.0}]
    rounds, evaluation = 7 * 3 * 5 * 4, 42_000 / 3
    plain, both = (
        need_of(Cell("a/b", "ditto-federations", {**settings, "personalize": methods})) for methods in ([], alongside)
    )
    seconds = network_costs()["svm"].seconds
    assert plain.seconds == pytest.approx((rounds + evaluation) * seconds)
    assert both.seconds == pytest.approx(3 * (rounds + evaluation) * seconds)
    assert both.memory == 4 * 101 * 23 * 3
    tuned = need_of(
        Cell("a/b", "ditto-federations", {**settings, "personalize": [{"name": "finetuning", "epochs": 2}]})
    )
    assert tuned.seconds == pytest.approx((rounds + 2 * 1_674 + 2 * evaluation) * seconds)


def test_a_cell_that_two_experiments_show_is_computed_once():
    cell, other = Cell("a/b", "train", _TRAINING), Cell("a/c", "train", {**_TRAINING, "method": "jtt"})
    first, second = needs([_experiment("x/one", cell), _experiment("x/two", cell, other)], "paper")
    assert (first.cells, first.shared) == (2, 0)
    assert (second.cells, second.shared) == (2, 2)
    flop = need_of(cell).flop
    assert flop is not None
    assert first.hours == pytest.approx(2 * flop / (TERAFLOPS * 1e12) / 3600)
    assert second.hours == pytest.approx(2 * first.hours)


def test_a_kind_that_cannot_be_counted_is_unknown_and_not_nothing():
    (need,) = needs([_experiment("x/one", Cell("a/b", "no such kind"))], "paper")
    assert (need.cells, need.unknown, need.hours) == (2, 2, 0)


def test_of_all_documents_only_the_pairs_of_imagenet_are_unknown():
    unknown = {each.name: each.unknown for paper in PAPERS for each in needs(experiments_of(paper), "paper")}
    assert {name for name, count in unknown.items() if count} <= {"clip/table7.4"}


@pytest.mark.parametrize("name", ["lenet5", "cnn-femnist"])
def test_stored_costs_are_those_of_todays_networks(name):
    script = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "paper_costs.py"))
    script["cost_of"].__globals__["TIMED"] = {}
    stored = network_costs()[name]
    assert script["cost_of"](name) == {
        "flop": stored.flop,
        "activation_bytes": stored.activation_bytes,
        "parameters": stored.parameters,
    }


def test_the_command_prints_what_is_needed_and_what_is_missing(capsys, tmp_path):
    assert main(["crest", "--scale", "paper", "--estimate", "--data-root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "crest/table2.1" in out
    assert f"data cifar10: missing below {tmp_path}; `holdfast data get cifar10`" in out
    assert "holdfast reproduce crest --scale paper" in out


def test_a_documents_name_stands_for_all_of_its_experiments_that_have_the_scale():
    assert experiments_to_run("spare/table5.4", "paper") == ["spare/table5.4"]
    named = experiments_to_run("spare", "paper")
    assert "spare/table5.4" in named
    assert "spare/digits" not in named
    with pytest.raises(ConfigError, match="no experiment of health has the scale paper"):
        experiments_to_run("health", "paper")
