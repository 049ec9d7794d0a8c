"""Reports by group as tables for a terminal; what they show is counted elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from holdfast.training.evaluation.folding import ends

if TYPE_CHECKING:
    from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics, GroupValues
    from holdfast.training.evaluation.by_group.metrics import Metric
    from holdfast.training.evaluation.group_report import GroupReport

#: Rows of a table at each end, where there are more than both ends together.
_ROWS = 20


def report_table(report: GroupReport, title: str = "") -> Table:
    """Accuracy by group: a row per group, the worst one highlighted, the averages below.

    Args:
        report: how the groups fare.
        title: what the report is of.

    Returns:
        A table to print with rich.
    """
    total = len(report.by_group) if report.folded is None else report.folded.groups
    many = total > 2 * _ROWS
    averages = [f"{name} {_percent(value)}" for name, value in report.averages.items() if value is not None]
    shown = ends(report.by_group, _ROWS) if many else report.by_group
    left_out = [f"shown are the {_ROWS} worst and the {_ROWS} best of {total:,}"] if many else []
    below = [
        *left_out,
        f"worst: {_percent(report.worst_accuracy)}, {report.worst.name}",
        f"average: {', '.join(averages)}",
        *report.notes,
    ]
    table = Table(title=escape(title) or None, caption=escape("\n".join(below)), caption_justify="left")
    worst = report.worst
    table.add_column("class" if report.grouping == "classes" else "group", overflow="fold")  # two may end alike
    for column in ("count", "correct", "accuracy", "95% interval", "train count"):
        table.add_column(column, justify="right", no_wrap=True)
    for place, score in enumerate(shown):
        if many and place == _ROWS:
            table.add_section()
        interval = "" if score.low is None else f"{_percent(score.low)} to {_percent(score.high)}"
        table.add_row(
            escape(score.name),
            str(score.count),
            str(score.correct),
            _percent(score.accuracy),
            interval,
            "" if score.train_count is None else str(score.train_count),
            style="bold red" if score is worst else None,
        )
    return table


def metrics_table(report: GroupMetrics, attributes: tuple[str, ...], title: str = "", most: int | None = None) -> Table:
    """Metrics by the groups of some attributes: a row per group, all examples first, the first metric's worst in red.

    Args:
        report: how the groups fare.
        attributes: what the groups are by.
        title: what the report is of.
        most: metrics that are shown, the first ones; all by default.

    Returns:
        A table to print with rich.
    """
    groups = report.by(*attributes)
    first = report.metrics[0].name
    known = [group for group in groups if group.values[first].known]
    worst = report.worst(first, *attributes) if known else None
    shown = groups if len(groups) <= 2 * _ROWS else sorted(known, key=lambda group: group.values[first].value)
    shown = shown if len(shown) <= 2 * _ROWS else [*shown[:_ROWS], *shown[-_ROWS:]]
    left_out = "" if len(shown) == len(groups) else f"{len(shown)} of {len(groups):,} groups, those at both ends"
    table = Table(title=escape(title) or None, caption=left_out or None, caption_justify="left")
    table.add_column(escape(" and ".join(attributes)), overflow="fold")
    table.add_column("count", justify="right")
    for metric in report.metrics[:most]:
        table.add_column(metric.title.lower(), justify="right")
    for group in (report.overall, *shown):
        cells = [in_words(metric, group) for metric in report.metrics[:most]]
        table.add_row(escape(group.name), f"{group.count:,}", *cells, style="bold red" if group is worst else None)
    return table


def in_words(metric: Metric, group: GroupValues) -> str:
    """A group's value of a metric as people read it, a dash where there is none."""
    value = group.values[metric.name]
    return number_in_words(metric, value.value) if value.known else "–"  # noqa: RUF001 - an en dash, as on pages


def number_in_words(metric: Metric, value: float) -> str:
    """A value of a metric as people read it."""
    return _percent(value) if metric.percent else f"{value:.3f}" if abs(value) < 1e4 else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
