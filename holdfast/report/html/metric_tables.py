"""Tables of any metric by group: a row per group with an interval under each value, and the gaps between groups."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from holdfast.report.html.charts import interval_bar
from holdfast.report.html.markup import DASH, Html, join, number, tag
from holdfast.report.html.tables import ROWS_AT_ENDS, SEARCHED, sortable, sortable_row
from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics, GroupValues
from holdfast.training.evaluation.by_group.metrics import Metric
from holdfast.training.evaluation.drawing import in_words, number_in_words
from holdfast.training.evaluation.folding import FOLDED_ABOVE

#: What parity gaps are called.
_PARITY = {
    "demographic_parity_difference": "Demographic parity, difference",
    "demographic_parity_ratio": "Demographic parity, ratio",
    "equal_opportunity_difference": "Equal opportunity, difference",
    "equalized_odds_difference": "Equalized odds, difference",
    "equalized_odds_ratio": "Equalized odds, ratio",
}

#: The text of a cell and the value it sorts by.
Cell = tuple[str, object]


def metrics_by_group(report: GroupMetrics, attributes: Sequence[str]) -> Html:
    """A row per group by some attributes, the worst by the first metric first; of very many, both ends and a box.

    Args:
        report: how the groups fare.
        attributes: what they are by.
    """
    first, groups = report.metrics[0], report.by(*attributes)
    known = sorted(
        (group for group in groups if group.values[first.name].known),
        key=lambda group: -report.badness(first.name, group),
    )
    order = [*known, *(group for group in groups if not group.values[first.name].known)]
    worst = known[0] if known else None
    many = len(order) > FOLDED_ABOVE
    shown = [*order[:ROWS_AT_ENDS], *order[len(known) - ROWS_AT_ENDS : len(known)]] if many else order
    by = " and ".join(attributes)
    columns = (by, "Examples", *(metric.title for metric in report.metrics))
    table = sortable(
        f"Metrics by {by}",
        f"Metrics by {by}; the headers sort.",
        columns,
        [_row(report, group, worst=group is worst) for group in shown],
        rising=None,
        class_="groups metrics",
    )
    return findable(table, [_plain(report, group) for group in order], by) if many else table


def _row(report: GroupMetrics, group: GroupValues, *, worst: bool) -> Html:
    cells: list[Cell] = [(number(group.count), group.count)]
    for place, metric in enumerate(report.metrics):
        value = group.values[metric.name]
        cells.append((_drawn(metric, group, bar=place == 0), value.value if value.known else None))
    return sortable_row(group.name, cells, flag="worst" if worst else None, class_="worst" if worst else None)


def _drawn(metric: Metric, group: GroupValues, *, bar: bool) -> Html:
    """A value with its interval below it; of a share, a bar besides."""
    value = group.values[metric.name]
    if not value.known:
        return Html(DASH)
    has_ends = value.low is not None and value.high is not None
    ends = tag("small", _ends(metric, group)) if has_ends else None
    drawn = None
    if bar and metric.percent and value.low is not None and value.high is not None:
        drawn = interval_bar(value.value, value.low, value.high)
    return join([tag("b", in_words(metric, group)), ends, drawn])


def _ends(metric: Metric, group: GroupValues) -> str:
    value = group.values[metric.name]
    assert value.low is not None and value.high is not None
    return f"{number_in_words(metric, value.low)} to {number_in_words(metric, value.high)}"


def _plain(report: GroupMetrics, group: GroupValues) -> list[list[object]]:
    """A row as plain values, for a page's box: text and value of each cell."""
    row: list[list[object]] = [[group.name, group.name], [number(group.count), group.count]]
    for metric in report.metrics:
        value = group.values[metric.name]
        row.append([in_words(metric, group), float(f"{value.value:.6g}")] if value.known else [DASH, ""])
    return row


def findable(table: Html, rows: Sequence[Sequence[Sequence[object]]], what: str) -> Html:
    """A table of those at both ends of very many groups, with a box that finds any other by its name.

    Args:
        table: of the worst and the best.
        rows: text and value of each cell of all rows, worst first; of more than `SEARCHED`, the worst and the best.
        what: what the groups are by.
    """
    found = rows if len(rows) <= SEARCHED else [*rows[: SEARCHED // 2], *rows[-SEARCHED // 2 :]]
    all_of = "all" if len(found) == len(rows) else f"{number(len(found))} of them"
    return tag(
        "div",
        tag(
            "p",
            f"Shown are the worst and the best {number(ROWS_AT_ENDS)} of {number(len(rows))} groups by {what}. ",
            tag("label", f"Find {all_of} by name: ", tag("input", type="search", autocomplete="off")),
            tag("output"),
            class_="note",
        ),
        table,
        data_find=json.dumps(found, separators=(",", ":"), ensure_ascii=False),
    )


def gaps_table(report: GroupMetrics, families: Sequence[tuple[str, ...]]) -> Html:
    """By attributes and metric: the best and the worst group, their difference and ratio."""
    rows = []
    for attributes in families:
        for metric in report.metrics:
            known = [group for group in report.by(*attributes) if group.values[metric.name].known]
            if len(known) < 2:
                continue
            best, worst = report.best(metric.name, *attributes), report.worst(metric.name, *attributes)
            if metric.better == "neither":  # of a rate that is neither good nor bad: the highest and the lowest
                best = max(known, key=lambda group: group.values[metric.name].value)
                worst = min(known, key=lambda group: group.values[metric.name].value)
            difference, ratio = report.to_best(metric.name, worst)
            cells: list[Cell] = [
                (metric.title, metric.title),
                *((f"{one.name}, {in_words(metric, one)}", one.values[metric.name].value) for one in (worst, best)),
                (_signed(metric, difference), difference),
                (DASH if math.isnan(ratio) else f"{ratio:.3f}", None if math.isnan(ratio) else ratio),
            ]
            rows.append(sortable_row(" and ".join(attributes), cells))
    heads = ("By", "Metric", "Worst group", "Best group", "Difference", "Ratio")
    caption = "Distance of the worst group to the best one; of a rate that is neither good nor bad, lowest to highest."
    return sortable("Gaps", caption, heads, rows, rising=None, class_="groups gaps")


def parity_table(report: GroupMetrics) -> Html | None:
    """Parity gaps by attribute, as fairlearn defines them; None of anything but two classes."""
    families = [(attributes, report.parity(*attributes)) for attributes in report.families]
    if not any(gaps for _, gaps in families):
        return None
    rows = [
        sortable_row(
            " and ".join(attributes),
            [
                (DASH, None) if math.isnan(gaps[name]) else (f"{gaps[name]:.3f}", gaps[name])
                for name in _PARITY
            ],
        )
        for attributes, gaps in families
    ]  # fmt: skip
    caption = "Differences are best at 0, ratios at 1."
    return sortable("Parity", caption, ("By", *_PARITY.values()), rows, rising=None, class_="groups gaps")


def _signed(metric: Metric, difference: float) -> str:
    return f"{100 * difference:+.1f} points" if metric.percent else f"{difference:+.3g}"
