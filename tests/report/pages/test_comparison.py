import io
import shutil
from dataclasses import replace

import pytest
from rich.console import Console

from holdfast.report import comparison, comparison_table
from holdfast.spurious import GroupBalanced
from holdfast.training import Run, Training
from tests.report.toy import StoppedError, stop_after, toy_run


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    return toy_run(tmp_path_factory.mktemp("runs") / "balanced", GroupBalanced())


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(StoppedError):
        toy_run(path, listeners=[stop_after(2)])
    return Run.open(path)


def printed(rows, width=200):
    console = Console(file=io.StringIO(), width=width)
    console.print(comparison_table(rows))
    return console.file.getvalue()


def test_a_row_has_what_the_results_say(finished):
    (row,) = comparison([finished])
    results = finished.results
    assert (row.run, row.status, row.method, row.data, row.seed) == ("plain", "finished", "erm", "toy", 0)
    assert (row.worst_group, row.worst_accuracy) == (results["test"]["worst"], results["test"]["worst_accuracy"])
    assert row.averages == pytest.approx(results["test"]["averages"])
    assert row.best_epoch == results["best_epoch"] + 1
    assert row.seconds == pytest.approx(sum(results["seconds"].values()))
    assert row.worst_difference is None


def test_differences_are_to_the_first_finished_run_and_paired(interrupted, finished, balanced):
    _, first, second = comparison([interrupted, finished, balanced])
    assert first.worst_difference is None
    gap = second.worst_difference
    assert gap.value == pytest.approx(second.worst_accuracy - first.worst_accuracy)
    assert gap.low <= gap.value <= gap.high
    assert gap.low < gap.high
    assert second.accuracy_difference.value == pytest.approx(second.averages["test mix"] - first.averages["test mix"])


def test_runs_that_cannot_be_paired_have_a_difference_without_interval(finished, balanced, tmp_path):
    shutil.copytree(balanced.path, tmp_path / "copy")
    (tmp_path / "copy" / "predictions.parquet").unlink()
    gap = comparison([finished, Run.open(tmp_path / "copy")])[1].worst_difference
    assert gap.value == pytest.approx(
        balanced.results["test"]["worst_accuracy"] - finished.results["test"]["worst_accuracy"]
    )
    assert gap.low is None


def test_runs_on_other_data_are_not_compared(finished, balanced, tmp_path):
    shutil.copytree(balanced.path, tmp_path / "copy")
    config = tmp_path / "copy" / "config.yaml"
    config.write_text(config.read_text().replace("data: toy", "data: other"))
    assert comparison([finished, Run.open(tmp_path / "copy")])[1].worst_difference is None


def test_a_run_without_results_is_shown_as_interrupted(finished, interrupted):
    row = comparison([finished, interrupted])[1]
    assert (row.status, row.worst_accuracy, row.worst_difference) == ("interrupted", None, None)
    assert "interrupted" in printed([row])


def test_the_table_shows_names_as_they_are_and_what_is_shared_in_its_title(finished, balanced):
    text = printed(comparison([finished, balanced]))
    title, body = text.split("run", 1)
    assert "toy, linear, seed 0" in title
    assert "group-balanced" in body
    assert "<script>" in text or "onerror" in text


def test_what_differs_between_runs_has_a_column(tmp_path):
    rows = comparison([toy_run(tmp_path / str(seed), settings=Training(epochs=1, seed=seed)) for seed in (0, 1)])
    assert [row.seed for row in rows] == [0, 1]
    title, body = printed(rows).split("run", 1)
    assert "seed 1" in body
    assert "seed" not in title


def test_the_table_fits_an_ordinary_terminal_without_cutting_anything_off(finished, balanced, interrupted):
    text = printed(comparison([finished, balanced, interrupted]), width=80)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert "difference" in text
    assert "interrupted" in text


def test_no_runs_make_an_empty_table():
    assert comparison_table(comparison([])).row_count == 0


def test_a_groups_name_is_not_folded_inside_a_word(finished, balanced):
    rows = [replace(row, worst_group="paper=ruled / handwriting=left") for row in comparison([finished, balanced])]
    words = printed(rows, width=100).split()
    assert words.count("paper=ruled") == words.count("handwriting=left") == 2
