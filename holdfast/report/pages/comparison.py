"""Runs side by side: a row per run, and how far each is from the first finished one on the same data set.

Two runs on the same test examples are compared pair by pair, so the difference has a bootstrap interval that leaves out
what is easy or hard for both. Where that can't be done (other examples, overlapping groups), the difference has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.markup import escape
from rich.table import Table

from holdfast.errors import CheckpointError, DataError
from holdfast.report.html.markup import duration, number, percent
from holdfast.report.pages.run_record import RunRecord
from holdfast.report.pages.side_by_side import in_lines, shared_facts, side_by_side
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.paired import Difference
from holdfast.training.run import Run, understanding

#: Letters of a line of a group's name in the terminal, and those up to which a longer word has its room.
_LINE, _LONGEST = 16, 24


@dataclass(frozen=True)
class Row:
    """A run in a comparison. What an unfinished run doesn't have yet is None.

    Attributes:
        run: name of its directory.
        status: ``finished``, ``running`` or ``interrupted``.
        method: name of the method.
        data: name of the data set.
        model: name of the model.
        seed: what names its random streams.
        worst_group: the group of the test set with the lowest accuracy.
        worst_accuracy: that accuracy.
        averages: the averages on the test set under names that say their weighting.
        best_epoch: how many epochs were completed when the chosen model was saved, from 1.
        epochs: how many epochs it was to have, warm-up included.
        seconds: time in all.
        worst_difference: worst accuracy minus that of the first finished run on the same data set.
        accuracy_difference: the same of the plain accuracy, in the test mix.
    """

    run: str
    status: str
    method: str
    data: str
    model: str
    seed: int | None
    worst_group: str | None = None
    worst_accuracy: float | None = None
    averages: dict[str, float | None] = field(default_factory=dict)
    best_epoch: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    worst_difference: Gap | None = None
    accuracy_difference: Gap | None = None


@dataclass(frozen=True)
class Gap:
    """A difference of two shares and, where the runs could be paired, its 95% interval.

    Attributes:
        value: this run minus the first.
        low: lower end of the interval, or None.
        high: upper end of the interval, or None.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, difference: Difference) -> Gap:
        """The gap that a paired comparison found."""
        return cls(difference.value, difference.low, difference.high)


def comparison(runs: Sequence[Run]) -> list[Row]:
    """A row per run, in the order given.

    Args:
        runs: finished or not.

    Returns:
        The rows; differences are to the first finished run on the same data set, which has none itself.
    """
    rows: list[Row] = []
    first: dict[str, GroupReport] = {}
    for run in runs:
        with understanding(run.path):
            rows.append(_row(run, first))
    return rows


def _row(run: Run, first: dict[str, GroupReport]) -> Row:
    """A run's row; `first` has the first finished run on each data set so far, and gets this one."""
    record = RunRecord.of(run)
    row = Row(
        run=record.path.resolve().name,
        status=record.status,
        method=record.method,
        data=record.data,
        model=record.model,
        seed=record.seed,
        epochs=record.epochs_planned,
        seconds=sum(record.seconds.values()) if record.seconds else None,
    )
    if record.finished and record.report is not None and record.best_epoch is not None:
        report = with_outcomes(run, record.report)
        row = replace(
            row,
            worst_group=report.worst.name,
            worst_accuracy=report.worst_accuracy,
            averages=report.averages,
            best_epoch=record.best_epoch + 1,
        )
        if record.data in first:
            worst, accuracy = _gaps(report, first[record.data])
            row = replace(row, worst_difference=worst, accuracy_difference=accuracy)
        else:
            first[record.data] = report
    return row


def comparison_table(rows: Sequence[Row]) -> Table:
    """The rows for a terminal; what is the same for all of them is in the title.

    Args:
        rows: what `comparison` gave.

    Returns:
        A table to print with rich.
    """
    averages = list(dict.fromkeys(name for row in rows for name, value in row.averages.items() if value is not None))
    facts_by_run = [_facts(row) for row in rows]
    shared, table = shared_facts(facts_by_run), side_by_side(facts_by_run, _caption(rows))
    table.add_column("run", overflow="fold")
    groups = [in_lines(row.worst_group or "", _LINE) for row in rows]
    widest = max((len(line) for group in groups for line in group.split("\n")), default=0)
    room = max(len("interrupted"), min(widest, _LONGEST))
    table.add_column("worst\ngroup", justify="right", overflow="fold", min_width=room)
    for name in ("difference", *(name.replace(" ", "\n") for name in averages), "best epoch\ntime"):
        table.add_column(name, justify="right", no_wrap=True)
    for row, facts, group in zip(rows, facts_by_run, groups, strict=True):
        own = [text for key, text in facts.items() if key not in shared and text]
        time = "" if row.seconds is None else duration(row.seconds)
        table.add_row(
            _lines(escape(row.run), *own),
            row.status
            if row.worst_group is None
            else _lines(percent(row.worst_accuracy), *map(escape, group.split("\n"))),
            _signed(row.worst_difference),
            *("" if row.averages.get(name) is None else percent(row.averages[name]) for name in averages),
            _lines("" if row.best_epoch is None else f"{row.best_epoch} of {number(row.epochs)}", time),
            style=None if row.status == "finished" else "dim",
        )
    return table


def _facts(row: Row) -> dict[str, str]:
    """What a run was of, ready to show."""
    seed = "" if row.seed is None else f"seed {row.seed}"
    return {"data": escape(row.data), "method": escape(row.method), "model": escape(row.model), "seed": seed}


def _lines(first: str, *below: str) -> str:
    return "\n".join([first, *(f"[dim]{line}[/dim]" for line in below if line)])


def with_outcomes(run: Run, stored: GroupReport) -> GroupReport:
    """The report with the outcome of each example, out of the saved predictions; as stored where groups overlap."""
    if stored.grouping == "overlapping groups" or stored.folded is not None:
        return stored
    if not (run.path / "predictions.parquet").exists():
        return stored
    columns = {name: column.copy() for name, column in run.predictions().items()}
    known = {"label": len(stored.by_class), "predicted": len(stored.by_class), "group": len(stored.by_group)}
    if odd := [name for name, count in known.items() if name in columns and columns[name].max(initial=0) >= count]:
        raise CheckpointError(
            f"predictions.parquet of {run.path} has a {odd[0]} that the run's results do not know; restore it "
            "from a copy"
        )
    trained = {score.name: score.train_count for score in stored.by_group if score.train_count is not None}
    return GroupReport.of_arrays(
        columns["predicted"],
        columns["label"],
        columns.get("group"),
        ids=columns["id"],
        class_names=[score.name for score in stored.by_class],
        group_names=[score.name for score in stored.by_group],
        train_counts=trained or None,
    )


def _gaps(ours: GroupReport, theirs: GroupReport) -> tuple[Gap, Gap]:
    try:
        paired = ours.compare(theirs)
    except DataError:
        return Gap(ours.worst_accuracy - theirs.worst_accuracy), Gap(ours.accuracy - theirs.accuracy)
    return Gap.of(paired.worst), Gap.of(paired.accuracy)


def _signed(gap: Gap | None) -> str:
    if gap is None:
        return ""
    interval = "" if gap.low is None or gap.high is None else f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f}"
    return _lines(f"{100 * gap.value:+.1f}", interval)


def _caption(rows: Sequence[Row]) -> str | None:
    if not any(row.worst_difference for row in rows):
        return None
    return (
        "difference: worst-group accuracy minus that of the first finished run on the same data set, in points; "
        "below it the 95% interval, paired by test example"
    )
