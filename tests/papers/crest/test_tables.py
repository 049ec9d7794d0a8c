"""The experiments of CREST: the loop that all its rows share, and how rows are compared."""

from dataclasses import replace

import pytest
import torch

from holdfast.papers.crest import cells
from holdfast.papers.crest import circumstances as crest_more
from holdfast.papers.crest import quality as crest_quality
from holdfast.papers.crest import quality_cells as quality
from holdfast.papers.crest import tables as crest
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.results import CellResult, Measured, Metric, Results, judge
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
        assert found["steps"] == {"full": 70, crest.SAME_TIME: 35}.get(cell.name.partition("/")[2], 7)
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


def result(name, **values):
    """A cell's measurements, one per seed from 0."""
    metrics = {key: Metric(Measured.of(v)) for key, v in values.items()}
    return CellResult(name, metrics, tuple(range(max(map(len, values.values())))), 1.0)


def verdict(experiment, claim, cells):
    (check,) = [each.check for each in find(experiment).claims if each.name == claim]
    return check(Results(experiment, "cpu", (0, 1, 2), tuple(cells)))


def test_errors_and_times_are_relative_to_the_full_training_of_the_column():
    full, row, other = crest.against_full(
        (
            result("a/full", accuracy=[80.0], seconds=[10.0]),
            result("a/crest", accuracy=[76.0, 72.0], seconds=[4.0, 6.0]),
            result("b/crest", accuracy=[1.0], seconds=[1.0]),
        )
    )
    assert row.metrics["error"].ours.values == pytest.approx((5, 10))
    assert row.metrics["time"].ours.mean == pytest.approx(0.5)
    assert full.metrics["error"].ours.mean == 0
    assert "error" not in other.metrics


def test_rows_are_compared_over_the_seeds_that_both_have():
    rows = [result("a/random", error=[50.0, 25.0])]
    rows += [result(f"a/{row}", error=[37.5]) for row in ("craig", "gradmatch", "glister")]
    found = verdict("crest/table2.1", "One big coreset per epoch is worse than Random", rows)
    assert found.holds is False, "as good as random's mean, and ten points better in the seed they share"
    assert "craig minus random on a -12.50 (one seed)" in found.evidence


@pytest.mark.parametrize(
    ("random", "holds"), [([10.0, 10.1, 9.9], True), ([7.9, 8.0, 8.1], False), ([10.0, 9.0, 8.0], None)]
)
def test_a_row_is_better_beyond_the_noise_of_its_seeds_or_not_judged(random, holds):
    rows = [result("a/crest", error=[9.0, 9.0, 9.0]), result("a/random", error=random)]
    found = verdict("crest/table2.1", "CREST is more accurate than Random", rows)
    assert found.holds is holds
    assert f"{sum(random) / 3 - 9:+.2f}" in found.evidence


@pytest.mark.parametrize(("chosen", "holds"), [([10, 12, 11], True), ([90, 95, 92], False), ([20, 30, 27], None)])
def test_mini_batches_are_counted_and_not_events(chosen, holds):
    rows = [
        result("a/crest", chosen=chosen, updates=[1, 1, 1]),
        result("a/every batch", chosen=[100, 100, 100], updates=[100, 100, 100]),
    ]
    claim = "CREST chooses at most 26 % of the mini-batches that choosing before every step does"
    found = verdict("crest/table2.1", claim, rows)
    assert found.holds is holds
    assert f"{sum(chosen) / 3:.0f}% of the mini-batches, 1% of the events" in found.evidence


@pytest.mark.parametrize(
    "options",
    [{}, {"interval": 4, "draws": 2, "modelled": 1}, {"coresets": 3, "tolerance": 0.01}, {"every_batch": True}],
)
def test_what_was_chosen_follows_from_the_examples_passed_through_the_model(monkeypatch, options):
    built = []
    original = cells.pinned_method

    def remembered(*given):
        built.append(original(*given))
        return built[-1]

    monkeypatch.setattr(cells, "pinned_method", remembered)
    given = settings(method="crest", options=options)
    found = cells.train_on_budget(given, 0)
    metrics = {name: Metric(Measured.of([value])) for name, value in found.items()}
    (policy,) = built
    assert crest.mini_batches_chosen(given, metrics) == [
        sum(record["coresets"] for record in policy.accounts.selections)
    ]


def test_stratified_random_mini_batches_have_equal_class_counts_and_choose_nothing():
    given = settings(batch_size=128, **crest.controls("digits", {"batch_size": 128})[crest.STRATIFIED])
    splits = cells.load_splits(given, 0)
    policy = cells.pinned_method("crest", {"crest": given["options"]})
    steps = cells.run_steps(cells.model_of(given, splits, 0), splits, policy, given, seed=0, last=6)
    counts = torch.stack([torch.bincount(splits.train.labels[step], minlength=10) for step in steps])
    assert (counts.amax(0) - counts.amin(0)).max() == 0, "the same number of each class in every step"
    assert len(torch.unique(torch.stack([step.sort().values for step in steps]), dim=0)) == 6


@pytest.mark.parametrize(("ends", "holds"), [([3, 3, 4], True), ([1, 1, 1], False), ([1, 1, 4], None)])
def test_intervals_that_stay_one_do_not_grow(ends, holds):
    found = verdict("crest/budgets", "Intervals grow", [result("40%/crest", interval=ends)])
    assert found.holds is holds
    assert ", ".join(map(str, ends)) in found.evidence


@pytest.mark.parametrize(("craig", "holds"), [(0.9, True), (0.1, False), (0.52, None)])
def test_biases_that_differ_by_less_than_their_noise_are_not_judged(craig, holds):
    values = {"crest bias": 0.5, "craig bias": craig, "crest floor": 0.06, "craig floor": 0.08}
    cell = result("a", **{f"50/{name}": [value] for name, value in values.items()})
    found = verdict("crest/gradients", "Coresets have less bias than mini-batches of one big coreset", [cell])
    assert found.holds is holds
    assert "noise of 0.100" in found.evidence


def test_a_claim_on_a_control_that_is_not_measured_is_not_judged():
    claims = tuple(claim for claim in crest.TABLE_2_3.claims if "stratified" in claim.name)
    rows = (result("pooled/crest", error=[1.0]), CellResult(f"pooled/{crest.STRATIFIED}", {}, version=None))
    judged = judge(replace(crest.TABLE_2_3, claims=claims), Results("crest/table2.3", "cpu", (0,), rows))
    assert [(claim.verdict, claim.evidence) for claim in judged.claims] == [
        ("not judged", "pooled/stratified random is not measured")
    ]
