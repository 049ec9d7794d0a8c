"""The experiments of EPIC: a trial, its controls, and the exchange of poisons."""

from dataclasses import replace

import pytest
import torch
from holdfast.papers.fingerprint import Fingerprint
from torch import nn

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.data.transforms import Normalise, Scale
from holdfast.papers import epic_beds as beds
from holdfast.papers import epic_cells as cells
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.results import CellResult, Measured, Metric, Results
from holdfast.papers.epic import adversarial_class, beside_undefended
from holdfast.papers.epic_figures import draw_trade_off
from holdfast.papers.epic_more import with_powers
from holdfast.papers.epic_watch import Watched, watch
from holdfast.poisoning import Epic
from holdfast.poisoning.attacks import Brewing
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
        assert cells.crafted("bullseye", tuple(own["bed"].items()), seed).adversarial_class == adversarial_class(seed)


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
    inputs = TensorInputs(pixels, lambda images: transform(Scale()(images)))
    return replace(
        Examples.of(torch.zeros(n, 3, 8, 8), torch.arange(n) % 4, ids=torch.arange(n) + first), inputs=inputs
    )


def test_the_documents_own_setting_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 4.2's cells as they are, on a made-up CIFAR-10, a small network and few steps."""
    splits = Splits("cifar10", cifar_like(80, 0), cifar_like(20, 100), cifar_like(20, 200))
    monkeypatch.setattr(beds.catalog, "load", lambda name: splits)
    monkeypatch.setattr(
        beds, "build", lambda name, shape, classes, seed: nn.Sequential(nn.Flatten(), nn.Linear(192, classes))
    )
    monkeypatch.setattr(beds, "SETTINGS", {"scratch": replace(beds.SETTINGS["scratch"], epochs=12, learning_rate=0.01)})
    small = lambda restarts: Brewing(restarts=restarts, steps=3)  # noqa: E731
    monkeypatch.setattr(beds, "Brewing", small)
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


def cell(name: str, successes: list[float], seconds: list[float], **controls: list[float]) -> CellResult:
    values = {"success": successes, "seconds": seconds, **{key.replace("_", " "): own for key, own in controls.items()}}
    return CellResult(name, {key: Metric(Measured.of(own)) for key, own in values.items()}, 1.0, {}, None)


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
    monkeypatch.setattr(beds.catalog, "load", lambda name: loaded)
    seen = []
    monkeypatch.setattr(beds, "train_surrogate", lambda model, examples, _: seen.append(examples) or model)
    ground = beds._BEDS["fashion-mnist"](20, 2, elsewhere=40)
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
    found = Results("epic/table4.2", "smoke", None, "", (0, 1), derived, (), Fingerprint("", {}), {})
    drawn = draw_trade_off(found)
    assert drawn.startswith("<svg") and "Targets fooled" in drawn
    assert ("<polygon" in drawn or "<path" in drawn) and "nan" not in drawn.lower()
