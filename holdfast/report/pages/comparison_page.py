"""One self-contained page of several runs of `fit`: their curves, every group side by side, and whether gaps are clear.

Differences are to the first finished run on the same data set. They are paired by test example (a bootstrap, see
`holdfast.training.evaluation.paired`), and called clear where the 95% interval leaves out zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import DataError, counted
from holdfast.report.html.charts import Axis, Line, chart, round_numbers
from holdfast.report.html.health import health_banner
from holdfast.report.html.markup import DASH, Html, duration, join, number, percent, tag
from holdfast.report.html.page import findings, hero, large_number, note, opening, section, write_page
from holdfast.report.html.tables import sortable, sortable_row
from holdfast.report.pages.comparison import Gap, Row, comparison, with_outcomes
from holdfast.report.pages.run_record import RunRecord
from holdfast.training.evaluation.folding import FOLDED_ABOVE
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.paired import Comparison
from holdfast.training.run import Run, understanding

#: Groups that are shown of very many, the worst of the first run.
_SHOWN = 100
#: Runs whose lines differ in kind.
_KINDS = 5


@dataclass(frozen=True)
class _Compared:
    """A run, its row of the comparison, and how it is paired with the first finished one on its data set.

    Attributes:
        name: of its directory.
        record: what its directory says.
        row: of the comparison.
        report: on the test set, where the run is finished.
        paired: the comparison by test example, where that is possible.
    """

    name: str
    record: RunRecord
    row: Row
    report: GroupReport | None
    paired: Comparison | None


def write_run_comparison(runs: Sequence[Run], path: Path) -> Path:
    """Write the page.

    Args:
        runs: of `fit`, finished or not.
        path: the file; its folder must exist.

    Returns:
        Where the page is.

    Raises:
        CheckpointError: if a run can't be read, or the page can't be written; an earlier one is left alone.
    """
    compared = _compared(runs)
    content = [
        _headline(compared),
        section("Runs", _runs_table(compared), note(_HOW), id_="runs"),
        _curves(compared),
        _groups(compared),
    ]
    return write_page(path, "Runs side by side", *content)


_HOW = (
    "Differences are to the first finished run on the same data set, in points, with 95% intervals paired by test "
    "example; a difference without interval is of runs that can't be paired."
)


def _compared(runs: Sequence[Run]) -> list[_Compared]:
    first: dict[str, GroupReport] = {}
    compared = []
    for run, row in zip(runs, comparison(runs), strict=True):
        with understanding(run.path):
            record = RunRecord.of(run)
            report = with_outcomes(run, record.report) if record.finished and record.report is not None else None
        paired = None
        if report is not None and record.data in first:
            paired = _paired(report, first[record.data])
        elif report is not None:
            first[record.data] = report
        compared.append(_Compared(run.path.resolve().name, record, row, report, paired))
    return compared


def _paired(ours: GroupReport, theirs: GroupReport) -> Comparison | None:
    try:
        return ours.compare(theirs)
    except DataError:
        return None


def _headline(compared: Sequence[_Compared]) -> Html:
    data = ", ".join(dict.fromkeys(Path(one.record.data).name or "unnamed data" for one in compared))
    banners = [
        tag("div", tag("p", tag("b", one.name), class_="note"), banner)
        for one in compared
        if one.record.health is not None
        and one.record.health.verdict != "ok"
        and (banner := health_banner(one.record.health)) is not None
    ]
    finished = [one for one in compared if one.row.worst_accuracy is not None]
    over = "holdfast runs compare"
    if not finished:
        lead = note("None of these runs is finished, so there are no test numbers yet.")
        return opening(over, counted(len(compared), "run"), data, [], *banners, lead)
    best = max(finished, key=lambda one: one.row.worst_accuracy or 0.0)
    large = large_number(
        "Best worst-group test accuracy",
        percent(best.row.worst_accuracy)[:-1],
        "%",
        [tag("b", best.name), f", {best.row.method}, group {best.row.worst_group}"],
    )
    sentences = [sentence for one in finished if (sentence := _verdict(one)) is not None]
    methods = ", ".join(dict.fromkeys(one.record.method or "training" for one in compared))
    return opening(
        over, counted(len(compared), "run"), data, [methods], *banners,
        hero(large, findings(*(sentences or ["There is no second finished run to compare with."]))),
    )  # fmt: skip


def _verdict(one: _Compared) -> str | None:
    """Whether a run's worst group and average differ clearly from the first run's, in a sentence."""
    gap = one.row.worst_difference
    if gap is None:
        return None
    if one.paired is None:
        return f"{one.name}: the worst group's accuracy differs by {_points(gap.value)} points; not paired."
    clear = "differs clearly" if one.paired.worst.clear else "does not differ clearly"
    many = sum(difference.clear for difference in one.paired.by_group)
    return (
        f"{one.name}: the worst group's accuracy {clear} ({_points(gap.value)} points, {_interval(gap)}); "
        f"{many} of {counted(len(one.paired.by_group), 'group')} differ clearly."
    )


def _runs_table(compared: Sequence[_Compared]) -> Html:
    averages = list(dict.fromkeys(name for one in compared for name, v in one.row.averages.items() if v is not None))
    rows = []
    for one in compared:
        row = one.row
        cells: list[tuple[str, object]] = [
            (row.method, row.method),
            (DASH if row.seed is None else str(row.seed), row.seed),
            (percent(row.worst_accuracy), row.worst_accuracy),
            _gap_cell(row.worst_difference),
            *((percent(row.averages.get(name)), row.averages.get(name)) for name in averages),
            _gap_cell(row.accuracy_difference),
            (DASH if row.best_epoch is None else f"{row.best_epoch} of {number(row.epochs)}", row.best_epoch),
            (DASH if row.seconds is None else duration(row.seconds), row.seconds),
        ]
        flag = None if row.status == "finished" else row.status
        rows.append(sortable_row(one.name, cells, flag=flag))
    heads = [
        "Run", "Method", "Seed", "Worst group", "Difference", *(name.capitalize() for name in averages),
        "Difference of the test mix", "Best epoch", "Time",
    ]  # fmt: skip
    return sortable("Runs", "Runs side by side; the headers sort.", heads, rows, rising=None, class_="groups metrics")


def _gap_cell(gap: Gap | None) -> tuple[Html, object]:
    if gap is None:
        return Html(DASH), None
    ends = tag("small", _interval(gap)) if gap.low is not None else None
    return join([tag("b", _points(gap.value)), ends]), gap.value


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _interval(gap: Gap) -> str:
    return "" if gap.low is None or gap.high is None else f"{_points(gap.low)} to {_points(gap.high)}"


def _curves(compared: Sequence[_Compared]) -> Html | None:
    trained = [one for one in compared if one.record.epochs]
    if not trained:
        return None
    figures = tag(
        "div",
        _figure(
            trained, "Worst group on the validation set", lambda event: float(event["validation"]["worst_accuracy"]),
            "Accuracy of each epoch's worst group, run by run; which group that is may change.", share=True,
        ),
        _figure(
            trained, "Training loss", lambda event: float(event["loss"]),
            "Mean over each epoch of the loss that was minimised; methods weigh examples differently, so heights are "
            "not comparable between methods.", share=False,
        ),
        class_="figures",
    )  # fmt: skip
    return section("Over the epochs", figures, id_="time")


def _figure(
    runs: Sequence[_Compared],
    title: str,
    value: Callable[[Mapping[str, Any]], float],
    caption: str,
    *,
    share: bool,
) -> Html:
    lines = []
    for place, one in enumerate(runs):
        points = tuple((event["epoch"] + 1.0, value(event)) for event in one.record.epochs)
        kind = f"named-{place}" if place < _KINDS else "other"
        last = points[-1][1]
        lines.append(Line(one.name, points, kind, percent(last, 0) if share else f"{last:.3g}"))
    end = max(x for line in lines for x, _ in line.points)
    steps = round_numbers(0.0, end)
    highest = 1.0 if share else max(y for line in lines for _, y in line.points) or 1.0
    ticks = round_numbers(0.0, highest)
    y = Axis(0.0, ticks[-1], tuple((tick, percent(tick, 0) if share else f"{tick:g}") for tick in ticks))
    x = Axis(0.0, end, tuple((step, f"{step:g}") for step in steps if step <= end and step == int(step)))
    label = f"{title}; " + "; ".join(f"{line.name} {line.end}" for line in lines)
    return chart(title, label, lines, x=x, y=y, marks=[], caption=Html(tag("span", caption)), labelled=share)


def _groups(compared: Sequence[_Compared]) -> Html | None:
    """A row per group, a column per finished run on the first run's data, with the difference to it."""
    finished = [one for one in compared if one.report is not None]
    if not finished:
        return None
    data = finished[0].record.data
    shown = [one for one in finished if one.record.data == data]
    scores = [{score.name: score for score in one.report.by_group} for one in shown if one.report is not None]
    names = sorted(scores[0], key=lambda name: _accuracy(scores[0].get(name), 2.0))
    few = names if len(names) <= FOLDED_ABOVE else names[:_SHOWN]
    rows = []
    for name in few:
        count = scores[0][name].count
        cells: list[tuple[str, object]] = [(number(count), count)]
        for one, of_run in zip(shown, scores, strict=True):
            score = of_run.get(name)
            accuracy = None if score is None else score.accuracy
            cells.append((_side_by_side(one, name, accuracy), accuracy))
        rows.append(sortable_row(name, cells))
    what = "class" if finished[0].report is not None and finished[0].report.grouping == "classes" else "group"
    left_out = f" Shown are the {len(few)} worst of {number(len(names))}." if len(few) < len(names) else ""
    lead = note(f"Test accuracy, worst first by {shown[0].name}; below it the difference to that run.{left_out}")
    table = sortable(
        "Groups side by side", "Accuracy by group and run; the headers sort.",
        (what.capitalize(), "Examples", *(one.name for one in shown)), rows, rising=None, class_="groups metrics",
    )  # fmt: skip
    return section(f"Every {what} side by side", lead, table, id_="groups")


def _accuracy(score: Any, otherwise: float) -> float:
    return otherwise if score is None or score.accuracy is None else float(score.accuracy)


def _side_by_side(one: _Compared, name: str, accuracy: float | None) -> Html:
    difference = None
    if one.paired is not None:
        difference = next((found for found in one.paired.by_group if found.name == name), None)
    if accuracy is None or difference is None:
        return Html(tag("b", percent(accuracy)))
    text = f"{_points(difference.value)} ({_points(difference.low)} to {_points(difference.high)})"
    return join([tag("b", percent(accuracy)), tag("small", text + (", clear" if difference.clear else ""))])
