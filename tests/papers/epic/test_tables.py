"""The experiments of EPIC: a trial, its controls, and the exchange of poisons."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.data.transforms import Normalise, ScalePixels
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.results import CellResult, Measured, Metric, Results
from holdfast.papers.engine.witness import watching
from holdfast.papers.epic import beds, cells
from holdfast.papers.epic.claims import rarer, rate_at_least, rate_at_most, slower, stops_more
from holdfast.papers.epic.figures import draw_trade_off
from holdfast.papers.epic.scratch_and_watched import FIGURE_4_3, SCRATCH, with_powers
from holdfast.papers.epic.tables import EXCHANGE, TABLE_4_2, TRANSFER, WANTED, beside_undefended
from holdfast.papers.epic.watch_cells import Watched, watch
from holdfast.poisoning import Epic
from holdfast.poisoning.attacks import SETTINGS, Brewing
from holdfast.primitives.threads import torch_threads


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with torch_threads(1):
        yield


def settings(experiment: str, name: str) -> dict:
    (found,) = [cell.settings for cell in find(experiment).cells_at("smoke") if cell.name == name]
    return dict(found)


@pytest.mark.parametrize("attack", ["bullseye", "gradient matching", "sleeper agent"])
def test_a_trial_has_its_controls(attack: str) -> None:
    plain = cells.defend(settings("epic/transfer", f"{attack}/none"), 0)
    defended = cells.defend(settings("epic/transfer", f"{attack}/epic-0.3"), 0)
    assert {"success", "accuracy", "seconds", "clean right", "defended right"} <= set(plain)
    assert plain["objective"] == defended["objective"]
    assert 0 < defended["dropped"] < 1
    assert 0 <= defended["poisons dropped"] <= 1


def test_poisons_are_crafted_once_per_trial() -> None:
    before = cells.crafted.cache_info().misses
    for row in ("epic-0.1", "random"):
        cells.defend(settings("epic/transfer", f"bullseye/{row}"), 0)
    assert cells.crafted.cache_info().misses - before <= 1


@pytest.mark.parametrize("row", ["deep-knn", "spectral", "activation", "dp-sgd", "epic-0.1", "ap-0.5"])
def test_every_defence_runs(row: str) -> None:
    found = cells.defend(settings("epic/table4.2", f"bullseye/{row}"), 0)
    assert 0 <= found["success"] <= 100
    assert 0 < found["accuracy"] <= 100


def test_the_table_knows_what_each_trials_attacker_wants() -> None:
    own = settings("epic/table4.2", "bullseye/none")
    for seed in (0, 3):
        assert cells.crafted("bullseye", tuple(own["bed"].items()), seed).adversarial_class == WANTED[seed]
    assert len(WANTED) == len(TABLE_4_2.seeds)


def test_poisons_are_exchanged() -> None:
    found = cells.exchange(settings("epic/effective", "gradient matching/epic-0.2"), 0)
    assert set(found) == {"all", "all but Z", "all but random", "only Z", "only R", "Z"}
    assert 0 <= found["Z"] <= 6


def test_the_control_of_the_exchange_drops_at_random() -> None:
    options = settings("epic/effective", "gradient matching/random")["options"]
    assert options["by"] == "random" and options["fraction"] == 0.2


def test_from_scratch_victims_start_anew() -> None:
    found = cells.defend(settings("epic/scratch", "gradient matching/epic-0.1"), 0)
    assert {"clean confidence", "clean accuracy", "brewed"} <= set(found)
    ground = beds.bed(**settings("epic/scratch", "gradient matching/none")["bed"])
    first, second = (next(ground.start(seed).parameters()) for seed in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("column", ["transfer", "scratch"])
def test_watching_changes_nothing(column: str) -> None:
    own = settings("epic/figure4.3", f"{column}/epic-0.3")
    seen = watch(own, 0)
    assert 0 <= seen["poisons dropped"] <= 1 and seen["kept error"] > 0 < seen["random error"]
    ground = beds.bed(**own["bed"])
    poisoned = cells.crafted("gradient matching", tuple(own["bed"].items()), 0)
    dropped = []
    for policy in (Epic(**own["options"]), Watched(poisoned, **own["options"])):
        cells.train_victim(
            ground.start(0), poisoned.poison(ground.splits), poisoned.aim, replace(ground.victim, augment="flip"),
            scenario=ground.scenario, defence=policy,
        )  # fmt: skip
        dropped.append([drop.ids.tolist() for drop in policy.drops])
    assert dropped[0] == dropped[1]


def cifar_like(n: int, first: int) -> Examples:
    pixels = torch.randint(256, (n, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(first))
    transform = Normalise((0.5,) * 3, (0.25,) * 3)
    inputs = TensorInputs(pixels, lambda images: transform(ScalePixels()(images)))
    return replace(
        Examples.of(torch.zeros(n, 3, 8, 8), torch.arange(n) % 4, ids=torch.arange(n) + first), inputs=inputs
    )


def test_the_documents_own_setting_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 4.2's cells as they are, on a made-up CIFAR-10, a small network and few steps."""
    splits = Splits("cifar10", cifar_like(80, 0), cifar_like(20, 100), cifar_like(20, 200))
    monkeypatch.setattr(beds, "pinned_splits", lambda name: splits)
    monkeypatch.setattr(
        beds, "build", lambda name, shape, classes, seed, weights: nn.Sequential(nn.Flatten(), nn.Linear(192, classes))
    )
    short = replace(beds._SCRATCH, epochs=12, learning_rate=0.01)
    own_bed = beds._BEDS["cifar10-40"]
    small = lambda: own_bed.func(*own_bed.args[:-1], short, attacker=short, steps=3)  # noqa: E731
    monkeypatch.setattr(beds, "_BEDS", {**beds._BEDS, "cifar10-40": small})
    monkeypatch.setattr(
        cells, "random_bases", lambda train, label, count, seed: (train.labels == label).nonzero()[:4, 0]
    )
    beds.bed.cache_clear()
    rows = {cell.name: dict(cell.settings) for cell in find("epic/table4.2").cells_at("paper")}
    assert len(rows) == 22
    own = rows["gradient-matching-40/epic-0.1"]
    assert own["options"] == {"fraction": 0.1, "start": 10, "every": 2, "stop": 35}
    monkeypatch.setattr(
        cells, "_target", lambda ground, label, stream: cells.Targets.of(ground.splits.test, [int(label == 0)], label)
    )
    found = cells.defend(own, 3)
    assert found["success"] in (0, 100) and {"brewed", "dropped", "first singletons"} <= set(found)
    beds.bed.cache_clear()


def test_settings_and_budget_of_the_document_are_pinned_as_the_library_has_them() -> None:
    pinned = {"scratch": beds._SCRATCH, "scratch-200": beds._SCRATCH_200}
    for name, settings in pinned.items():
        assert replace(SETTINGS[name], ties="first") == settings  # the library keeps the most accurate of equal epochs
    assert beds.pinned(Brewing, restarts=8) == Brewing(restarts=8)


def cell(name: str, successes: list[float], seconds: list[float], **controls: list[float]) -> CellResult:
    values = {"success": successes, "seconds": seconds, **{key.replace("_", " "): own for key, own in controls.items()}}
    seeds = tuple(range(len(successes)))
    return CellResult(name, {key: Metric(Measured.of(own)) for key, own in values.items()}, seeds)


def test_only_targets_that_both_controls_see_rightly_count() -> None:
    plain, defended = beside_undefended(
        (
            cell("a/none", [100, 100, 0, 100], [1] * 4, clean_right=[1, 1, 1, 0], defended_right=[1, 1, 1, 0]),
            cell("a/epic", [100, 0, 0, 100], [1] * 4, clean_right=[1, 1, 1, 0], defended_right=[0, 1, 1, 0]),
        )
    )
    assert plain.metrics["trials"].ours.mean == 3 and defended.metrics["trials"].ours.mean == 2
    assert plain.metrics["fooled"].ours.mean == pytest.approx(200 / 3)
    assert defended.metrics["fooled"].ours.mean == 0


def test_without_a_trial_that_counts_there_is_no_rate() -> None:
    (found,) = beside_undefended((cell("a/none", [100], [1], clean_right=[0], defended_right=[0]),))
    assert found.metrics["trials"].ours.mean == 0 and "fooled" not in found.metrics


def test_probabilities_from_scratch_are_compared_in_powers_of_ten() -> None:
    values = {"confidence": [1e-3, 0.0], "clean_confidence": [1e-6, 1e-8]}
    (found,) = with_powers((cell("a/none", [0, 0], [1, 1], **values),))
    assert found.metrics["gain"].ours.values == pytest.approx((3.0, -22.0))
    assert found.metrics["trials"].ours.mean == 2


def test_time_and_interval_stand_beside_the_undefended() -> None:
    plain, defended = beside_undefended((cell("a/none", [100, 0], [2, 4]), cell("a/epic", [0, 0], [3, 6])))
    assert defended.metrics["time"].ours.values == (1.0, 2.0)
    assert plain.metrics["from"].ours.mean == pytest.approx(9.45, abs=0.01)
    assert defended.metrics["to"].ours.mean == pytest.approx(65.76, abs=0.01)


def test_the_bed_of_fashion_learns_its_features_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def images(n: int, first: int) -> Examples:
        pixels = torch.rand(n, 1, 28, 28, generator=torch.Generator().manual_seed(first))
        return Examples.of(pixels, torch.arange(n) % 10, ids=torch.arange(n) + first)

    loaded = Splits("fashion-mnist", images(60, 0), images(10, 100), images(20, 200))
    monkeypatch.setattr(beds, "pinned_splits", lambda name: loaded)
    seen = []
    monkeypatch.setattr(beds, "train_surrogate", lambda model, examples, _: seen.append(examples) or model)
    ground = beds._BEDS["fashion-mnist"](examples=20, poisons=2, elsewhere=40)
    assert ground.splits.train.input_shape == (3, 14, 14) and len(ground.splits.train) == 20
    assert not set(seen[0].ids.tolist()) & set(ground.splits.train.ids.tolist())
    image = ground.splits.test.inputs.gather(torch.arange(1))[0]
    whole = loaded.test.inputs.gather(torch.arange(1))[0, 0, :2, :2].mean()
    assert image[0, 0, 0] == image[2, 0, 0] == pytest.approx(float(whole), abs=0.5 / 255 + 1e-6)


@pytest.mark.parametrize("right", [1.0, 0.0])
def test_the_trade_off_is_drawn_also_where_no_trial_counts(right: float) -> None:
    controls = {"clean_right": [right] * 2, "defended_right": [right] * 2, "accuracy": [90.0, 80.0]}
    dropped = {"dropped": [0.1, 0.2], "poisons_dropped": [0.5, 1.0]}
    rows = (cell("bullseye/none", [100, 0], [1, 1], **controls),)
    rows += tuple(
        cell(f"bullseye/epic-{fraction}{pool}", [100, 0], [1, 1], **controls, **dropped)
        for fraction in (0.1, 0.2)
        for pool in ("", ", remaining")
    )
    derived = beside_undefended(rows)
    found = Results("epic/table4.2", "smoke", (0, 1), derived)
    drawn = draw_trade_off(found)
    assert "<svg" in drawn and "Targets fooled" in drawn
    assert "<path" in drawn and "nan" not in drawn.lower()


def table(*rows: CellResult, scale: str = "cpu") -> Results:
    return Results("epic/made-up", scale, tuple(range(20)), rows)


def test_defences_are_compared_by_the_trials_that_count_in_both() -> None:
    right = {"clean_right": [1.0] * 8, "defended_right": [1.0] * 8}
    ours, theirs = cell("a/ours", [0] * 8, [1] * 8, **right), cell("a/theirs", [100] * 6 + [0, 0], [1] * 8, **right)
    assert stops_more(table(ours, theirs), "a/ours", "a/theirs").holds is True
    assert stops_more(table(ours, theirs), "a/theirs", "a/ours").holds is False
    unsure = {**right, "defended_right": [0.0] * 4 + [1.0] * 4}
    noisy = cell("a/theirs", [100] * 6 + [0, 0], [1] * 8, **unsure)
    found = stops_more(table(ours, noisy), "a/ours", "a/theirs")
    assert found.holds is None and "0 against 2 successes of 4" in found.evidence
    nobody = cell("a/theirs", [100] * 8, [1] * 8, clean_right=[0.0] * 8, defended_right=[0.0] * 8)
    assert stops_more(table(ours, nobody), "a/ours", "a/theirs").holds is None


def test_shares_of_a_backdoor_are_compared_by_their_differences() -> None:
    ours, theirs = cell("a/ours", [2, 1, 3], [1] * 3), cell("a/theirs", [70, 60, 65], [1] * 3)
    assert stops_more(table(ours, theirs), "a/ours", "a/theirs").holds is True
    close = cell("a/theirs", [3, 0, 3], [1] * 3)
    assert stops_more(table(ours, close), "a/ours", "a/theirs").holds is None


def test_a_rate_holds_or_fails_a_bound_only_beyond_chance() -> None:
    def rate(k: int) -> Results:
        return table(cell("a/none", [100] * k + [0] * (10 - k), [1] * 10))

    assert rate_at_least(rate(9), "a/none", 0.5).holds is True
    assert rate_at_least(rate(9), "a/none", 0.8).holds is None
    assert rate_at_least(rate(2), "a/none", 0.8).holds is False
    assert (
        rate_at_most(rate(0), "a/none", 0.2).holds is None
        and "0 of 10" in rate_at_most(rate(0), "a/none", 0.2).evidence
    )
    assert rate_at_most(rate(0), "a/none", 0.3).holds is True
    assert rate_at_most(rate(6), "a/none", 0.2).holds is False


def test_two_groups_of_trials_are_compared_by_fisher_s_test() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for k, m in ((0, 4), (2, 4), (9, 1)):
        ours, theirs = [1] * k + [0] * (10 - k), [1] * m + [0] * (8 - m)
        wanted = scipy.fisher_exact([[k, 10 - k], [m, 8 - m]], alternative="less").pvalue
        more = scipy.fisher_exact([[k, 10 - k], [m, 8 - m]], alternative="greater").pvalue
        found = rarer(ours, theirs, "")
        assert f"p = {min(wanted, more):.3f}" in found.evidence
        assert found.holds is (True if wanted <= 0.05 else False if more <= 0.05 else None)


def test_times_are_compared_as_factors() -> None:
    plain = cell("a/none", [0, 0, 0], [1.0, 2.0, 4.0])
    slow = cell("a/slow", [0, 0, 0], [10.0, 21.0, 39.0])
    assert slower(table(plain, slow), "a/slow", "a/none", 6).holds is True
    assert slower(table(plain, slow), "a/slow", "a/none", 6, -1).holds is False
    found = slower(table(plain, slow), "a/slow", "a/none", 10)
    assert found.holds is None and "10.08" in found.evidence


def test_every_claim_of_the_transfer_bed_can_hold_and_fail() -> None:
    """A made-up table in which EPIC does everything, and one in which it does nothing."""

    def made_up(good: bool) -> Results:
        rows = []
        for name in (cell.name for cell in TRANSFER.cells_at("cpu")):
            row = name.partition("/")[2]
            fooled = row in ("none", "random", "highest loss", "lowest confidence") or row == "epic-0.1"
            epic = row.startswith("epic")
            wins = [100] * 40 if (fooled if good else epic) else [0] * 40
            dropped = {"none": 0.0}.get(row, 0.3 if "0.3" in row else 0.2 if "0.2" in row else 0.1 if epic else 0.3)
            values = {
                "accuracy": [95.0 if epic is good else 90.0] * 40,
                "dropped": [dropped if good else 0.5 - dropped] * 40,
                "selectivity": [8.0 if epic is good else 1.0] * 40,
                "first_singletons": [9.0 if good else 0.2] * 40,
            }
            rows.append(cell(name, wins, [1.0] * 40, **values))
        return Results(TRANSFER.name, "cpu", tuple(range(40)), tuple(rows))

    for good in (True, False):
        found = {claim.name: claim.check(made_up(good)) for claim in TRANSFER.claims}
        assert {name: verdict.holds for name, verdict in found.items()} == dict.fromkeys(found, good)
        assert all(any(sign.isdigit() for sign in verdict.evidence) for verdict in found.values())


def exchanged(**shares: list[float]) -> Results:
    names = ("gradient matching/epic-0.2", "gradient matching/random")
    values = {key.replace("_", " "): Metric(Measured.of(own)) for key, own in shares.items()}
    seeds = tuple(range(8))
    return Results(EXCHANGE.name, "cpu", seeds, tuple(CellResult(name, values, seeds) for name in names))


def test_exchanged_poisons_tell_or_not() -> None:
    always, never, few = [100.0] * 8, [0.0] * 8, [100.0] * 2 + [0.0] * 6
    clear = exchanged(all=always, all_but_Z=never, all_but_random=always, only_Z=always, only_R=never)
    first, others, at_random = (claim.check for claim in EXCHANGE.claims)
    assert first(clear).holds is True and others(clear).holds is True
    assert at_random(clear).holds is None
    assert first(exchanged(all=few, all_but_Z=never, all_but_random=few, only_Z=few, only_R=never)).holds is None
    turned = exchanged(all=never, all_but_Z=always, all_but_random=never, only_Z=never, only_R=always)
    assert first(turned).holds is False and others(turned).holds is False
    assert at_random(exchanged(all=always, only_Z=never)).holds is True


@pytest.mark.parametrize(("kept", "verdict"), [(0.1, True), (0.9, False), (0.5, None)])
def test_gradients_of_the_kept_are_compared_seed_by_seed(kept: float, verdict: bool | None) -> None:
    claim = next(claim for claim in FIGURE_4_3.claims if claim.name.startswith("What is kept"))
    values = {"kept error": [kept + step for step in (-0.05, 0.0, 0.05)], "random error": [0.5, 0.5, 0.5]}
    seeds = (0, 1, 2)
    rows = tuple(
        CellResult(cell.name, {name: Metric(Measured.of(own)) for name, own in values.items()}, seeds)
        for cell in FIGURE_4_3.cells_at("cpu")
    )
    assert claim.check(Results(FIGURE_4_3.name, "cpu", seeds, rows)).holds is verdict


@pytest.mark.parametrize(("left", "verdict"), [(0.5, True), (2.9, False), (1.5, None)])
def test_half_of_what_poisons_gained_is_taken_or_not(left: float, verdict: bool | None) -> None:
    claim = next(claim for claim in SCRATCH.claims if "half" in claim.name)
    seeds = (0, 1, 2)
    rows = []
    for name in (cell.name for cell in SCRATCH.cells_at("cpu")):
        gain = [3.0, 3.0, 3.0] if name.endswith("none") else [left - 0.2, left, left + 0.2]
        rows.append(CellResult(name, {"gain": Metric(Measured.of(gain))}, seeds))
    assert claim.check(Results(SCRATCH.name, "cpu", seeds, tuple(rows))).holds is verdict


def test_a_trial_tells_the_witness_of_attacker_and_victim() -> None:
    with watching() as seen:
        cells.defend(settings("epic/transfer", "bullseye/epic-0.3"), 0)
    assert {"surrogate|norm", "objective|norm", "perturbations|wave", "victim|norm", "confidence"} <= set(seen)
    assert "losses of the dropped[0]" in seen
