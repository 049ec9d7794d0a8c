"""The tables of a report: how every group fares, what it was taken for, and the plain facts of the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.report.html.charts import interval_bar
from holdfast.report.html.markup import DASH, Html, duration, join, number, percent, tag
from holdfast.report.pages.run_record import RunRecord
from holdfast.training.evaluation.folding import FOLDED_ABOVE, ends
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.scores import GroupScore

_COLUMNS = ("Examples", "Correct", "Accuracy", "95% interval", "In training")
_CELLS_WITH_TEXT = 20
#: Of very many groups, the rows that are shown at each end.
ROWS_AT_ENDS = 50
#: Of very many groups, those that a page's box finds.
SEARCHED = 20_000
_PLANS = 500
#: Groups or classes up to which a heat map of all of them is drawn, and the rows that are named of a larger one.
_DRAWN, _NAMED = 128, 50

#: What a plan does to the examples that take part, by the name of its slot.
SLOTS = {
    "copies": "as often as the plan says",
    "sample_weight": "drawn by sampling weight",
    "loss_weight": "weighed in the loss",
    "strata": "with each class in proportion in every mini-batch",
    "batches": "in chosen mini-batches",
    "batch_weight": "weighed in each mini-batch",
}


def group_table(report: GroupReport, part: str) -> Html:
    """A row per group, the worst first and marked; each header sorts.

    Args:
        report: how the groups fare.
        part: what it is on: ``test`` or ``validation``.

    Returns:
        The table.
    """
    what = "Class" if report.grouping == "classes" else "Group"
    order = sorted(report.by_group, key=lambda score: 2.0 if score.accuracy is None else score.accuracy)
    total = len(order) if report.folded is None else report.folded.groups
    shown = order if total <= FOLDED_ABOVE else ends(order, ROWS_AT_ENDS)
    table = sortable(
        f"Accuracy by {what.lower()}",
        f"Accuracy by {what.lower()} on the {part} set; the headers sort.",
        (what, *_COLUMNS),
        [_group_row(score, worst=score is report.worst) for score in shown],
        rising="Accuracy",
        class_="groups scores",
    )
    return table if total <= FOLDED_ABOVE else searchable(table, order, total, f"{what.lower()}")


def searchable(table: Html, scores: Sequence[GroupScore], total: int, what: str) -> Html:
    """A table of those at both ends of very many groups, with a box that finds any other by its name.

    What can be found is in the page as plain values, a group in about twenty bytes; of more than `SEARCHED`, the worst
    and the best.

    Args:
        table: of the worst and the best.
        scores: of all groups that are known, worst first.
        total: how many groups there are.
        what: what a row is, ``group`` or ``class``.

    Returns:
        The box, a place for what it finds, and the table.
    """
    found = scores if len(scores) <= SEARCHED else [*scores[: SEARCHED // 2], *scores[-SEARCHED // 2 :]]
    data = [[score.name, score.count, score.correct, score.train_count] for score in found]
    plural = "classes" if what == "class" else "groups"
    shown = 2 * min(ROWS_AT_ENDS, len(scores) // 2)
    all_of = "all" if len(found) == total else f"{number(len(found))} of them"
    return tag(
        "div",
        tag(
            "p",
            f"Shown are the worst and the best {number(shown // 2)} of {number(total)} {plural}. ",
            tag("label", f"Find {all_of} by name: ", tag("input", type="search", autocomplete="off")),
            tag("output"),
            class_="note",
        ),
        table,
        data_search=json.dumps(data, separators=(",", ":"), ensure_ascii=False),
    )


def sortable(
    label: str, caption: str, columns: Sequence[str], rows: Sequence[Html], *, rising: str | None, class_: str
) -> Html:
    """A table whose headers sort it; each cell of its rows has a ``data-value`` to sort by.

    Args:
        label: what it is about, for those who don't see it.
        caption: the same in a sentence.
        columns: names of the columns; the first names the rows.
        rows: the rows as they stand at first.
        rising: the column by which they rise already, if any.
        class_: how it looks.

    Returns:
        The table in a box that scrolls.
    """
    heads = [
        tag(
            "th",
            tag("button", name, type="button"),
            scope="col",
            aria_sort="ascending" if name == rising else "none",
            class_=None if place else "name",
        )
        for place, name in enumerate(columns)
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="quiet"),
            tag("thead", tag("tr", *heads)),
            tag("tbody", *rows),
            class_=class_,
            data_sortable=True,
        ),
        **scrolling(label),
    )


def sortable_row(
    name: str, cells: Iterable[tuple[str, object]], *, flag: str | None = None, class_: str | None = None
) -> Html:
    """A row of a `sortable` table.

    Args:
        name: of the row, by which its first column sorts.
        cells: what each other cell shows, and the value it sorts by; None sorts as empty.
        flag: a word behind the name where the row is special.
        class_: how it looks.

    Returns:
        The row.
    """
    return tag(
        "tr",
        tag("th", row_name(name, flag), scope="row", data_value=name),
        *(tag("td", text, data_value="" if value is None else value) for text, value in cells),
        class_=class_,
    )


def _group_row(score: GroupScore, *, worst: bool) -> Html:
    if score.accuracy is None or score.low is None or score.high is None:
        interval = tag("td", DASH, data_value="")
    else:
        interval = tag(
            "td",
            interval_bar(score.accuracy, score.low, score.high),
            tag("span", f"{percent(score.low)} to {percent(score.high)}", class_="ends"),
            data_value=score.low,
            class_="whiskers",
        )
    return tag(
        "tr",
        tag("th", row_name(score.name, "worst" if worst else None), scope="row", data_value=score.name),
        *(_count(value) for value in (score.count, score.correct)),
        tag("td", percent(score.accuracy), data_value="" if score.accuracy is None else score.accuracy, class_="share"),
        interval,
        _count(score.train_count),
        class_="worst" if worst else None,
    )


def _count(value: int | None) -> Html:
    return tag("td", number(value), data_value="" if value is None else value)


def row_name(name: str, flag: str | None) -> Html:
    """The name of a row, with a word in the accent colour behind it where it is special."""
    return join([tag("span", name), tag("span", flag, class_="flag") if flag else None])


def confusion_table(report: GroupReport, true_classes: Sequence[int | None]) -> Html:
    """A heat map of what each group was taken for: rows are groups, columns predicted classes.

    Args:
        report: how often each class was predicted in each group.
        true_classes: the class of each group's examples, None where they have several.

    Returns:
        The table; shares are of the row, and the true class is framed.
    """
    if max(len(report.by_group), len(report.by_class)) > _DRAWN:
        return _mistakes_table(report, true_classes)
    classes = [score.name for score in report.by_class]
    compact = len(classes) > _CELLS_WITH_TEXT
    rows = []
    for score, counts, true in zip(report.by_group, report.confusion.tolist(), true_classes, strict=True):
        if score.count:
            worst = score is report.worst
            cells = [
                heat_cell(count, score.count, f"{score.name} taken for {name}", right=place == true, compact=compact)
                for place, (name, count) in enumerate(zip(classes, counts, strict=True))
            ]
            head = tag("th", row_name(score.name, "worst" if worst else None), scope="row")
            rows.append(tag("tr", head, *cells, class_="worst" if worst else None))
    what = "Class" if report.grouping == "classes" else "Group"
    heads = [tag("th", tag("span", name), scope="col") for name in classes]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", f"What each {what.lower()} was taken for: share of the row and count.", class_="quiet"),
            tag("thead", tag("tr", tag("th", f"{what} \N{RIGHTWARDS ARROW} predicted", scope="col"), *heads)),
            tag("tbody", *rows),
            class_="confusion compact" if compact else "confusion",
        ),
        **scrolling("Confusion"),
    )


def _mistakes_table(report: GroupReport, true_classes: Sequence[int | None]) -> Html:
    """The most frequent mistakes, where groups or classes are too many for a heat map."""
    cells, true = report.predicted, np.array([-1 if place is None else place for place in true_classes])
    wrong = np.flatnonzero(cells.columns != true[cells.rows])
    order = wrong[np.argsort(-cells.counts[wrong], kind="stable")][:_NAMED]
    what, worst = "Class" if report.grouping == "classes" else "Group", report.worst
    rows = []
    for group, label, count in zip(cells.rows[order], cells.columns[order], cells.counts[order], strict=True):
        score, name = report.by_group[group], report.by_class[label].name
        rows.append(
            tag(
                "tr",
                tag("th", row_name(score.name, "worst" if score is worst else None), scope="row"),
                tag("td", name),
                heat_cell(int(count), score.count, f"{score.name} taken for {name}"),
            )
        )
    heads = [tag("th", name, scope="col") for name in (what, "Taken for", "Share")]
    caption = f"The {number(len(rows))} most frequent of {number(len(wrong))} ways to be taken for another class."
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption),
            tag("thead", tag("tr", *heads)),
            tag("tbody", *rows),
            class_="confusion",
        ),
        **scrolling("Most frequent mistakes"),
    )


def heat_cell(count: int, of: int, title: str, *, right: bool = False, compact: bool = False) -> Html:
    """A cell that is the darker the larger its count's share of the row.

    Args:
        count: in the cell.
        of: in the row.
        title: what the cell counts.
        right: whether it is framed.
        compact: whether the colour says all and the text is left out.

    Returns:
        The cell.
    """
    share = count / of
    kinds = [kind for kind, holds in (("right", right), ("dark", share > 0.68), ("none", count == 0)) if holds]
    shown = "<1%" if 0 < share < 0.005 else percent(share, 0)
    text = join([tag("b", shown), tag("small", number(count))]) if count else tag("small", "0")
    return tag(
        "td",
        None if compact else text,
        class_=" ".join(kinds) or None,
        style=f"--share:{share:.3f}",
        title=f"{title}: {number(count)} of {number(of)} ({percent(share)})",
    )


def _thinned(plans: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most `_PLANS` of them, the first and the last among them: some methods change their plan at every step."""
    places = np.unique(np.linspace(0, len(plans) - 1, min(len(plans), _PLANS)).round().astype(int))
    return [plans[place] for place in places]


def plan_table(record: RunRecord) -> Html:
    """The changes of plan, one per row."""
    rows = [
        tag(
            "tr",
            tag("td", f"{record.when(plan['step']):.2f}".rstrip("0").rstrip(".")),
            tag("td", number(plan["step"])),
            tag("td", number(plan["active"])),
            tag("td", ", ".join(how for slot, how in SLOTS.items() if slot in plan["slots"]) or "evenly"),
        )
        for plan in _thinned(record.plans)
    ]
    heads = [tag("th", name, scope="col") for name in ("Epochs completed", "Step", "Active examples", "How")]
    return tag(
        "div", tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows)), **scrolling("Changes of plan")
    )


def scrolling(label: str) -> dict[str, object]:
    """What makes the box around a wide table scroll, by keyboard too."""
    return {"class_": "scroll", "role": "region", "aria_label": label, "tabindex": 0}


def timing_table(record: RunRecord) -> Html:
    """Where the time went, and how fast training was."""
    total = sum(record.seconds.values())
    rows = [
        tag(
            "tr",
            tag("th", activity, scope="row"),
            tag("td", duration(seconds)),
            tag("td", percent(seconds / total, 0) if total else ""),
        )
        for activity, seconds in record.seconds.items()
    ]
    rows.append(tag("tr", tag("th", "together", scope="row"), tag("td", duration(total)), tag("td"), class_="total"))
    trained = sum(event["examples"] for event in record.epochs)
    training = record.seconds.get("train", 0.0)
    speed = f"{number(trained / training)} training examples a second." if training else ""
    return join(
        [
            tag("table", tag("tbody", *rows), class_="facts"),
            tag("p", speed, class_="note") if speed else None,
        ]
    )


def facts_table(facts: Mapping[str, Any]) -> Html:
    """Names and values, one per row."""
    rows = []
    for name, value in facts.items():
        text = " ".join(map(str, value)) if isinstance(value, list) else DASH if value is None else str(value)
        rows.append(tag("tr", tag("th", name, scope="row"), tag("td", text)))
    return tag("table", tag("tbody", *rows), class_="facts")
