import dataclasses

from holdfast.papers.engine.execute import CellOutcome, execute
from holdfast.papers.engine.experiment import Cell, Grid, Printed
from holdfast.papers.engine.render import heading, markdown, rows
from tests.papers.engine.test_results import ORIGIN
from tests.papers.toy import add, measured, reference, toy_experiment

GRID = Grid(
    rows={"shared": "one for all", "own": "own", "never": "never"},
    columns={"clean": "nobody", "a1": "attacked", "a2": "elsewhere"},
    mean="pooled",
    spread="std",
    says="the mean/the deviation",
)


def grid_experiment(marks):
    def cells(scale):
        return (
            Cell("clean/plain", reference(add), {"base": 0}),
            Cell("a1/plain", reference(add), {"base": 1}, most_seeds=1),
        )

    printed = {"clean/plain": {"own/pooled": Printed(0.9), "own/std": Printed(0.08)}}
    return toy_experiment(marks, cells=cells, printed=printed, claims=(), grid=GRID, digits=3)


def outcome(cell, seed, shared, own):
    numbers = {"shared/pooled": shared, "shared/std": 0.1, "own/pooled": own, "own/std": 0.055}
    return CellOutcome(cell, seed, numbers, 2.0, origin=ORIGIN)


def outcomes():
    return [
        outcome("clean/plain", 0, 0.5, 0.91),
        outcome("clean/plain", 1, 0.6, 0.93),
        outcome("a1/plain", 0, 0.25, 1.0),
    ]


def test_one_cell_fills_several_rows_of_a_grid(tmp_path):
    experiment = grid_experiment(tmp_path)
    results = measured(experiment, outcomes())
    assert heading(experiment, results) == ["", "nobody", "attacked"]
    assert rows(experiment, results) == [
        ["one for all", ".550±.071/.10", ".250/.10"],
        ["own", ".920±.014/.06 (.900/.08)", "1.000/.06"],
        ["seconds", "2", "2"],
    ]


def test_the_page_of_a_grid_says_what_an_entry_is_and_which_cells_have_fewer_seeds(tmp_path):
    experiment = grid_experiment(tmp_path)
    page = markdown(measured(experiment, outcomes()), experiment)
    assert "Some cells have the first seed only, and so no ±. An entry is the mean/the deviation; printed" in page


def test_an_entry_of_a_grid_that_failed_is_told_from_one_that_was_never_to_be(tmp_path):
    experiment = grid_experiment(tmp_path)
    broken = [CellOutcome("clean/plain", seed, None, 1.0, error="no data", origin=ORIGIN) for seed in (0, 1)]
    results = measured(experiment, [*broken, outcomes()[2]])
    assert rows(experiment, results)[1] == ["own", "failed (.900/.08)", "1.000/.06"]


def test_a_cell_is_run_under_as_many_seeds_as_it_asks_for(tmp_path):
    cells = toy_experiment(tmp_path).cells("cpu")
    once = dataclasses.replace(cells[1], most_seeds=1)
    found = execute((cells[0], once), (3, 4), cache=tmp_path / "cache", jobs=1)
    assert [(outcome.cell, outcome.seed) for outcome in found] == [("toy/a", 3), ("toy/a", 4), ("toy/b", 3)]
