"""The experiments of CREST: the loop that all its rows share, and how rows are compared."""

import pytest
import torch
from holdfast.papers.fingerprint import Fingerprint

from holdfast.papers import coreset_cells as cells
from holdfast.papers import coreset_quality_cells as quality
from holdfast.papers import crest, crest_more, crest_quality
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.results import CellResult, Measured, Metric, Results
from holdfast.training.policy import Uniform


def settings(**changes):
    return {**crest.SMOKE, "full_epochs": 2, "budget": 0.5, **changes}


@pytest.mark.parametrize(("progress", "factor"), [(0.05, 0.5), (0.3, 1), (0.7, 0.1), (0.9, 0.01)])
def test_the_rate_warms_up_and_is_cut_twice(progress, factor):
    assert cells.rate_factor(progress - 1e-6, 1e-6) == pytest.approx(factor)


def rates(monkeypatch, given):
    """The learning rate of every step of a run."""
    used = []
    original = torch.optim.SGD.step

    def step(self, *args, **kwargs):
        used.append(self.param_groups[0]["lr"])
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    splits = cells.load_splits(given, 0)
    model = cells.model_of(given, splits, 0)
    cells.run_steps(model, splits, Uniform(), given, seed=0, last=cells.steps_of(given, len(splits.train)))
    return used


def test_a_budget_is_a_number_of_steps_and_the_schedule_fits_into_it(monkeypatch):
    used = rates(monkeypatch, settings(full_epochs=10, budget=0.2))
    assert len(used) == 70
    assert used[0] == pytest.approx(0.05 / 7)
    assert max(used) == pytest.approx(0.05)
    assert used[-1] == pytest.approx(0.0005)


def test_a_schedule_that_is_cut_never_lowers_its_rate(monkeypatch):
    used = rates(monkeypatch, settings(full_epochs=10, budget=0.1, cut=True))
    assert len(used) == 35
    assert used == sorted(used)
    assert used[-1] == pytest.approx(0.05)


@pytest.mark.parametrize("name", ["crest/table2.1", "crest/table2.3", "crest/where"])
def test_every_row_trains(name):
    for cell in find(name).cells_at("smoke"):
        found = cells.train_on_budget({**cell.settings, "full_epochs": 2}, 0)
        assert found["steps"] == (70 if cell.name.endswith("full") else 7)
        assert 0 < found["accuracy"] <= 100
        assert found["updates"] == sum(found[f"updates {q}"] for q in (1, 2, 3, 4)) or found["updates"] > 7


def test_copies_repeat_a_part_of_the_data():
    whole, copied = cells.load_splits(settings(), 0).train, cells.load_splits(settings(copies=4), 0).train
    assert len(copied) == len(whole) // 4 * 4
    inputs, _ = copied.gather(torch.arange(len(copied)))
    assert len(torch.unique(inputs.flatten(1), dim=0)) <= len(whole) // 4


def test_pooling_averages_pixels():
    whole, pooled = cells.load_splits(settings(), 0).test, cells.load_splits(settings(pool=2), 0).test
    image, average = (part.gather(torch.tensor([0]))[0][0] for part in (whole, pooled))
    assert average.shape[1:] == (4, 4)
    assert float(average[0, 0, 0]) == pytest.approx(float(image[0, :2, :2].mean()))


def test_two_methods_can_share_a_training():
    found = cells.train_on_budget(settings(method="erm", then="crest", then_options={"every_batch": True}), 0)
    assert found["steps"] == 35
    assert found["updates"] == 19, "once before each of the last 18 steps, and after the last"
    assert found["updates 1"] == found["updates 2"] - 1 == 0, "the second half begins at step 17"
    assert found["choosing"] > 0


def test_models_of_the_loss_are_compared_step_by_step():
    (cell,) = crest_quality.MODEL.cells_at("smoke")
    found = quality.models_of_the_loss(cell.settings, 0)
    models = ("first order", "quadratic", "signed", "8 probes")
    assert set(found) == {f"{model} after {n}" for model in models for n in (1, 4)}
    assert 0 < found["quadratic after 1"] < found["quadratic after 4"] < 0.1


def test_difficulty_is_that_of_what_is_trained_on():
    (cell,) = crest_more.DIFFICULTY.cells_at("smoke")
    found = cells.difficulty_of_choices({**cell.settings, "full_epochs": 4}, 0)
    assert {f"crest/third {third}" for third in (1, 2, 3)} <= found.keys()
    assert found["random/third 1"] == pytest.approx(found["mean"], abs=0.3)
    assert 0 < found["crest/selected"] <= 1


def test_gradients_are_measured_at_points_of_a_training():
    (cell,) = crest_quality.GRADIENTS.cells_at("smoke")
    found = quality.gradients_of_choices({**cell.settings, "draws": 10}, 0)
    for point in (10, 40):
        assert found[f"{point}/random r variance"] < found[f"{point}/random m variance"]
        assert found[f"{point}/crest variance"] < found[f"{point}/random m variance"]
        assert found[f"{point}/epsilon greedy"] < found[f"{point}/epsilon shuffled"]
        assert found[f"{point}/union error"] < found[f"{point}/crest error"]


def result(name, accuracy, seconds):
    values = {"accuracy": accuracy, "seconds": seconds}
    metrics = {key: Metric(Measured(sum(v) / len(v), None, tuple(v))) for key, v in values.items()}
    return CellResult(name, metrics, 1.0, {})


def test_errors_and_times_are_relative_to_the_full_training_of_the_column():
    full, row, other = crest.against_full(
        (result("a/full", [80.0], [10.0]), result("a/crest", [76.0, 72.0], [4.0, 6.0]), result("b/crest", [1.0], [1.0]))
    )
    assert row.metrics["error"].ours.values == pytest.approx((5, 10))
    assert row.metrics["time"].ours.mean == pytest.approx(0.5)
    assert full.metrics["error"].ours.mean == 0
    assert "error" not in other.metrics


def test_rows_are_compared_over_the_seeds_that_both_have():
    rows = [result("a/full", [80.0], [10.0]), result("a/random", [40.0, 60.0], [1.0, 1.0])]
    rows += [result(f"a/{row}", [50.0], [1.0]) for row in ("craig", "gradmatch", "glister")]
    cells = crest.against_full(tuple(rows))
    results = Results("crest/table2.1", "cpu", None, "", (0, 1), cells, (), Fingerprint("", {}), {})
    behind = next(claim for claim in crest.TABLE_2_1.claims if claim.name.startswith("One big coreset"))
    verdict = behind.check(results)
    assert not verdict.holds, "as good as random's mean, and ten points better in the seed they share"
    assert "craig on a -12.5" in verdict.evidence
