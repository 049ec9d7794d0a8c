"""Personalized FL with spurious features as experiments: one shared model per cell, every method on top of it."""

import pytest

from holdfast.papers import shortcuts, shortcuts_more
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.experiment import load_function
from holdfast.papers.shortcut_cells import evenly, run_personalization, simulate_gaussian

NAMES = ("table2", "table3", "figure1", "figure2", "robustness", "imperfect", "composition", "figure8")


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_can_be_found_and_its_cells_be_called(name):
    experiment = find(f"spurious-personalization/{name}")
    for scale in experiment.scales:
        for cell in experiment.cells_at(scale):
            assert callable(load_function(cell.function))
    rows = set() if experiment.grid is None else set(experiment.grid.rows)
    methods = {row for cell in experiment.cells_at("smoke") for row in cell.settings.get("methods", {})}
    assert rows <= methods | {"global"}


def test_a_small_cell_has_every_number_and_they_fit_together():
    setting = shortcuts.small_setting("smoke")
    wanted = ("ft", "uw", "jtt-injected", "ours-1-1")
    options = {"epochs": 2, "checkpoints": 2}
    methods = {
        row: {**shortcuts.METHODS[row], "options": {**shortcuts.METHODS[row].get("options", {}), **options}}
        for row in wanted
    }
    methods["spare"] = {"policy": "spare", "options": {"infer_epoch": 1}, "epochs": 2}
    found = run_personalization({**setting, "methods": methods}, seed=0)
    for row in ("global", *wanted, "spare"):
        assert found[f"{row}/average"] == pytest.approx(found[f"{row}/worst"] + abs(found[f"{row}/disparity"]) / 2)
        assert found[f"{row}/disparity"] == pytest.approx(found[f"{row}/accuracy"] - found[f"{row}/elsewhere"])
    for row in wanted:
        assert found[f"{row}/at2_accuracy"] == found[f"{row}/accuracy"]
        assert 0 <= found[f"{row}/transfer"] <= 1 and found[f"{row}/instability"] >= 0
    assert (found["ours-1-1/adversarial"], found["ours-1-1/weights"]) == (1, 1)
    assert 0 < found["epsilon"] <= 8 / 255
    again = run_personalization({**setting, "methods": {"ft": methods["ft"]}}, seed=0)
    assert again["ft/accuracy"] == found["ft/accuracy"], "methods don't change each other's draws"


def test_a_robust_rule_under_attack_is_one_setting():
    setting = {**shortcuts.small_setting("smoke"), "epsilon": 0.01}
    methods = {"ft": {"name": "ft", "options": {"epochs": 1, "checkpoints": 1}}}
    attacked = {"threat": {"name": "a1", "ratio": 0.25}, "aggregator": "multi-krum"}
    found = run_personalization({**setting, **attacked, "methods": methods}, seed=0)
    assert 0 <= found["ft/worst"] <= 1


def test_clients_are_taken_evenly_from_environments():
    class Fake:
        names = ("environment 0",) * 3 + ("environment 1",) * 3

        def __len__(self) -> int:
            return 6

    assert evenly(Fake(), 4) == [0, 1, 3, 4]  # type: ignore[arg-type]


def test_gaussian_cells_measure_shared_and_personal_models():
    shared = simulate_gaussian({"case": "a", "rounds": 20}, 0)
    assert shared["real"] > 0.3
    free, held = (
        simulate_gaussian({"adversarial": a, "weights": b, "clients": 2}, 0) for a, b in ((0.0, 0.0), (10.0, 0.1))
    )
    assert free["spurious"] > held["spurious"]
    assert free["disparity"] > held["disparity"]


def test_the_same_cells_serve_the_table_and_its_figures():
    for other in (shortcuts.TABLE3, shortcuts_more.FIGURE1, shortcuts_more.ROBUSTNESS):
        assert other.cells_at("cpu") == shortcuts.TABLE2.cells_at("cpu")
