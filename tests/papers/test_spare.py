from collections.abc import Mapping

import pytest

from holdfast.data import catalog as data
from holdfast.methods import METHODS
from holdfast.models.registry import MODELS
from holdfast.papers.execute import Outcome
from holdfast.papers.reproduce import reproduce
from holdfast.papers.spare import TABLE_5_1
from holdfast.training import Training
from tests.papers.test_results import make


@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_every_cell_of_table_5_1_names_what_exists(scale):
    for cell in TABLE_5_1.cells_at(scale):
        settings = cell.settings
        options = {key: value for key, value in settings["data"].items() if key != "name"}
        data.find(settings["data"]["name"])(**options)
        assert settings["model"]["name"] in MODELS
        assert settings["method"] in METHODS
        assert Training(**settings["training"])


def test_the_settings_of_cmnist_are_those_of_the_data_sets_recipe():
    (cell, *_) = TABLE_5_1.cells_at("cpu")
    recipe = dict(data.find("cmnist5").recipe)
    recipe.pop("threads")  # every cell runs on one
    assert cell.settings["model"]["name"] == recipe.pop("model")
    ours = Training(**cell.settings["training"])
    assert {key: getattr(ours, key) for key in recipe} == recipe


def judged(worst: Mapping[str, float], average=20.0):
    """The verdicts of Table 5.1 at the cpu scale for these worst-group accuracies."""
    found = [
        Outcome(f"cmnist/{method}", seed, {"worst_group": score, "average": average}, 1.0)
        for method, score in worst.items()
        for seed in (0, 1)
    ]
    return [claim.holds for claim in make(TABLE_5_1, found).claims]


def test_the_printed_numbers_satisfy_every_claim():
    assert judged({"erm": 0.0, "class-balanced": 0.0, "group-balanced": 82.2}, 20.1) == [True] * 5


def test_every_claim_can_fail():
    assert judged({"erm": 30.0, "class-balanced": 50.0, "group-balanced": 60.0}, 60.0) == [False] * 5


def test_the_smoke_scale_of_table_5_1_runs_and_shows_the_papers_point(tmp_path):
    results = reproduce(TABLE_5_1, "smoke", cache=tmp_path)
    assert results.complete, [cell.errors for cell in results.cells]
    assert all(claim.holds is not False for claim in results.claims), results.claims
    assert results.held == 3
    metrics = set(results.cells[0].metrics)
    assert metrics >= {"worst_group", "average", "accuracy", "train_mix", "group_mean", "best_epoch", "train_seconds"}
