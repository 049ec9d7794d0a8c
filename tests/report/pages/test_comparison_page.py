"""Runs of fit side by side on a page: the same numbers as on their own pages, paired where that is possible."""

import pytest

from holdfast.cli.main import main
from holdfast.report.pages.comparison import comparison
from holdfast.report.pages.comparison_page import write_run_comparison
from holdfast.spurious import GroupBalanced
from holdfast.training import Run
from tests.report.reading import read_page
from tests.report.toy import StoppedError, stop_after, toy_run


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    return toy_run(tmp_path_factory.mktemp("runs") / "balanced", GroupBalanced())


def test_groups_curves_and_differences_are_those_of_the_runs(finished, balanced, tmp_path):
    runs = [finished, balanced]
    page = read_page(write_run_comparison(runs, tmp_path / "both.html").read_text())
    second = comparison(runs)[1]
    table = page.one("section", id="runs").all("tbody")[0].all("tr")
    assert f"{100 * second.worst_difference.value:+.1f}" in table[1].text
    assert f"{100 * second.worst_difference.low:+.1f} to" in table[1].text
    groups = page.one("section", id="groups").all("tbody")[0].all("tr")
    stored = {run.path.name: run.results["test"]["groups"] for run in runs}
    assert len(groups) == len(stored["plain"])
    for row in groups:
        place = next(number for number, one in enumerate(stored["plain"]) if one["name"] == row.all("th")[0].text)
        shown = [cell.all("b")[0].text for cell in row.all("td")[1:]]
        assert shown == [f"{stored[name][place]['accuracy']:.1%}" for name in ("plain", "balanced")]
    worst, loss = page.one("section", id="time").all("figure")
    last = {run.path.name: [e for e in run.metrics() if e["event"] == "epoch"][-1] for run in runs}
    for name, event in last.items():
        assert f"{name} {event['validation']['worst_accuracy']:.0%}" in worst.all("svg")[0].attributes["aria-label"]
        assert f"{name} {event['loss']:.3g}" in loss.all("svg")[0].attributes["aria-label"]
    assert "clearly" in page.one("header").text


def test_runs_that_are_not_finished_are_shown_without_test_numbers(finished, tmp_path, capsys):
    with pytest.raises(StoppedError):
        toy_run(tmp_path / "stopped", listeners=[stop_after(2)])
    page = write_run_comparison([Run.open(tmp_path / "stopped"), finished], tmp_path / "page.html").read_text()
    assert "interrupted" in read_page(page).one("section", id="runs").text
    paths = [str(tmp_path / "stopped"), str(finished.path)]
    assert main(["runs", "compare", *paths, "--page", str(tmp_path / "cli.html")]) == 0
    assert (tmp_path / "cli.html").read_text() == page
    (only,) = [Run.open(tmp_path / "stopped")]
    text = write_run_comparison([only, only], tmp_path / "none.html").read_text()
    assert "None of these runs is finished" in text
