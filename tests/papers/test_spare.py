from collections.abc import Mapping

from holdfast.data import catalog as data
from holdfast.papers.columns import modules_behind
from holdfast.papers.engine.execute import Outcome
from holdfast.papers.engine.reproduce import reproduce
from holdfast.papers.spare import TABLE_5_1
from holdfast.training import Training
from tests.papers.test_results import make


def test_the_settings_of_cmnist_are_those_of_the_data_sets_recipe():
    (cell, *_) = TABLE_5_1.cells_at("cpu")
    recipe = dict(data.find("cmnist5").recipe)
    recipe.pop("threads")  # every cell runs on one
    assert cell.settings["model"]["name"] == recipe.pop("model")
    ours = Training(**cell.settings["training"])
    assert {key: getattr(ours, key) for key in recipe} == recipe


def test_a_cell_depends_on_what_its_method_imports_and_on_no_other_method():
    spare = modules_behind("spare")
    assert {"spurious.spare", "spurious.separation", "primitives.kmeans", "primitives.silhouette"} <= set(spare)
    assert not {"spurious.pde", "spurious.jtt"} & set(spare)
    assert modules_behind("erm") == ()


def judged(worst: Mapping[str, float], average=20.0, seconds=1.0):
    """The verdicts of Table 5.1 at the cpu scale for these worst-group accuracies, the same in both columns."""
    found = [
        Outcome(
            cell.name,
            seed,
            {
                "worst_group": worst.get(cell.settings["method"], 10.0),
                "average": average,
                "passes": 20.0,
                "train_seconds": seconds if cell.settings["method"] == "spare" else 1.0,
            },
            1.0,
        )
        for cell in TABLE_5_1.cells_at("cpu")
        for seed in (0, 1)
    ]
    return {claim.name: claim.holds for claim in make(TABLE_5_1, found).claims}


def test_the_printed_numbers_satisfy_every_claim():
    printed = {"erm": 0.0, "class-balanced": 0.0, "group-balanced": 82.2, "spare": 83.0, "cnc": 77.4}
    assert set(judged(printed, 20.1).values()) == {True}


def test_every_claim_can_fail():
    bad = {"erm": 30.0, "class-balanced": 50.0, "group-balanced": 60.0, "spare": 40.0}
    assert set(judged(bad, 60.0, seconds=1.2).values()) == {False}


def test_the_smoke_scale_of_table_5_1_runs_and_shows_the_papers_point(tmp_path):
    results = reproduce(TABLE_5_1, "smoke", cache=tmp_path)
    assert results.complete, [cell.errors for cell in results.cells]
    assert all(claim.holds is not False for claim in results.claims), results.claims
    assert results.held == 4
    metrics = set(results.cells[0].metrics)
    assert metrics >= {"worst_group", "average", "accuracy", "train_mix", "group_mean", "best_epoch", "train_seconds"}
