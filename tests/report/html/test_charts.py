import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest

from holdfast.report.html import charts
from holdfast.report.html.charts import (
    Axis,
    Line,
    _end_labels,
    accuracy_figure,
    active_figure,
    interval_bar,
    loss_figure,
    round_numbers,
)
from holdfast.report.pages.run_record import RunRecord
from holdfast.training import Run
from tests.report.reading import read_page


def with_groups(finished, path, count):
    """A copy of a run whose validation reports have `count` groups, the last of them the worst."""
    shutil.copytree(finished.path, path)
    events = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for report in [event["validation"] for event in events if event["event"] == "epoch"]:
        report["groups"] = [
            {"name": f"group {place}", "count": 100, "correct": 99 - place, "train_count": 10} for place in range(count)
        ]
        report["predicted"] = [[50, 50]] * count
    (path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    results = json.loads((path / "results.json").read_text())
    results["test"] = results["test_last"] = events[-2]["validation"]
    (path / "results.json").write_text(json.dumps(results))
    return RunRecord.of(Run.open(path))


def test_each_group_has_a_line_with_a_point_per_epoch(finished):
    record = RunRecord.of(finished)
    figure = read_page(accuracy_figure(record))
    lines = figure.one("svg", role="img").all("path", class_="line")
    assert len(lines) == 4
    assert all(line.attributes["d"].count("L") == len(record.epochs) - 1 for line in lines)


def test_the_accent_goes_to_the_worst_group_of_the_headline(finished):
    record = RunRecord.of(finished)
    (worst,) = read_page(accuracy_figure(record)).one("svg", role="img").all("path", class_="worst")
    assert worst.text.startswith(record.report.worst.name)


def test_of_many_groups_only_the_worst_are_named(finished, tmp_path):
    figure = read_page(accuracy_figure(with_groups(finished, tmp_path / "run", 25)))
    assert [item.all("span")[0].text for item in figure.one("ul").all("li")] == [
        "group 24", "group 23", "group 22", "group 21",
    ]  # fmt: skip
    assert len(figure.all("path", class_="other")) == 21
    assert "The other 21 groups are grey" in figure.one("figcaption").text


def test_the_chosen_epoch_is_marked_where_it_is(finished):
    record = RunRecord.of(finished)
    figure = read_page(accuracy_figure(record))
    share = (record.best_epoch + 1) / len(record.epochs)
    assert float(figure.one("line", class_="chosen").attributes["x1"]) == pytest.approx(1000 * share)
    assert figure.one("span", class_="marked").text == f"chosen: epoch {record.best_epoch + 1}"


def test_changes_of_plan_are_marked_and_counted(shrinking):
    figure = read_page(accuracy_figure(RunRecord.of(shrinking)))
    assert len(figure.all("line", class_="plan")) == 3
    assert "3 changes of plan" in figure.one("figcaption").text


def test_a_restart_is_marked_and_explained(finished):
    record = RunRecord.of(finished)
    epochs = tuple({**event, "stage": int(event["epoch"] >= 2)} for event in record.epochs)
    figure = read_page(accuracy_figure(replace(record, epochs=epochs)))
    assert float(figure.one("line", class_="restart").attributes["x1"]) == pytest.approx(500)
    assert "restarted from scratch" in figure.one("figcaption").text


def test_the_active_examples_go_down_in_steps(shrinking):
    figure = read_page(active_figure(RunRecord.of(shrinking)))
    (line,) = figure.all("path", class_="line")
    heights = [float(pair.split()[1]) for pair in re.split("[ML]", line.attributes["d"])[1:]]
    assert heights == sorted(heights)
    assert len(set(heights)) == 4
    assert "from 120 to 90 of 120" in figure.one("svg", role="img").attributes["aria-label"]


def test_a_run_of_one_epoch_has_figures(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    file = tmp_path / "run" / "metrics.jsonl"
    events = [line for line in file.read_text().splitlines(keepends=True) if json.loads(line)["epoch"] == 0]
    file.write_text("".join(events))
    record = RunRecord.of(Run.open(tmp_path / "run"))
    for figure in (accuracy_figure(record), loss_figure(record)):
        assert "h0" in figure


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.0, 0.037), (0.7, 1.0), (0.0, 9900.0), (0.9, 1.0), (-2.3, 5.1)]
)
def test_ticks_are_few_and_cover_the_range(low, high):
    ticks = round_numbers(low, high)
    assert 4 <= len(ticks) <= 7
    assert ticks[0] == low
    assert ticks[-1] >= high * (1 - 1e-9)


def test_a_range_of_nothing_has_its_one_end():
    assert round_numbers(5.0, 5.0) == (5.0,)
    assert round_numbers(0.0, -1.0) == (0.0,)


def test_labels_at_the_ends_of_lines_never_overlap_and_stay_in_the_plot():
    lines = [
        Line(f"g{place}", ((1.0, share),), "worst") for place, share in enumerate((0.0, 0.01, 0.0, 0.5, 0.51, 1.0))
    ]
    labels = read_page("".join(_end_labels(lines, Axis(0.0, 1.0, ()))))
    tops = [float(label.attributes["style"][4:-1]) for label in labels.children]
    assert all(after - before >= 6.49 for before, after in pairwise(tops))
    assert tops[0] >= 0
    assert tops[-1] <= 100


def test_the_whisker_spans_the_interval():
    whisker = read_page(interval_bar(0.5, 0.4, 0.7)).all("line", class_="whisker")[0]
    assert (whisker.attributes["x1"], whisker.attributes["x2"]) == ("400.0", "700.0")


def test_names_of_groups_that_begin_alike_differ_where_they_are_short():
    names = [f"Haus & Hof/paper={value}" for value in ("blank", "ruled", "stamped")]
    short = [charts._abbreviated(name) for name in names]
    assert len(set(short)) == 3 and all(len(name) <= 16 for name in short)
    assert charts._abbreviated("0-4/green") == "0-4/green"
