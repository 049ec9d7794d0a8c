"""One self-contained page of predictions by group: any metric, anybody's model.

It begins with whether the numbers can bear a conclusion and with the worst group, shows every attribute as a table with
intervals, attributes together folded, the gaps between groups, and how well probabilities are calibrated; where columns
are named to show, it ends with mistakes of the worst group. The accent colour means the worst group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import counted
from holdfast.report.html.charts import Axis, Line, chart, round_numbers
from holdfast.report.html.health import health_banner
from holdfast.report.html.markup import Html, join, number, percent, tag
from holdfast.report.html.metric_tables import gaps_table, metrics_by_group, parity_table
from holdfast.report.html.page import code, findings, folded, hero, large_number, note, opening, section, write_page
from holdfast.report.html.tables import facts_table, scrolling
from holdfast.training.evaluation.by_group.doubts import FEW, headline_group, health, may_be_chance
from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics, GroupValues
from holdfast.training.evaluation.by_group.judged import Ints, Judged
from holdfast.training.evaluation.drawing import in_words, number_in_words

#: Examples on the page, and bins of a calibration curve.
SHOWN, _BINS = 12, 10
#: Attributes whose gap is in the headline.
_IN_HEADLINE = 4


#: What is said of a gap, by whether the intervals of its two groups meet.
_CHANCE: Mapping[bool | None, str] = {
    True: "; their intervals overlap, so the gap may be chance",
    False: "; their intervals do not overlap",
}


@dataclass(frozen=True)
class ShownExamples:
    """Mistakes of the worst group.

    Attributes:
        rows: their numbers in the table, from 0.
        columns: what is shown of each.
        cells: the text of each column, row by row.
    """

    rows: Sequence[int]
    columns: Sequence[str]
    cells: Sequence[Sequence[str]]


@dataclass(frozen=True)
class AboutPredictions:
    """What a page says of where its predictions come from.

    Attributes:
        name: of the predictions.
        by: what judged what, in a clause.
        notes: what a reader must know, in sentences.
        facts: by name.
        command: the line that made the page.
    """

    name: str
    by: str
    notes: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""


def worst_mistakes(report: GroupMetrics, most: int = SHOWN) -> Ints:
    """The worst group's examples that were judged most wrongly, worst first."""
    group = headline_group(report)
    if group is None:
        return np.empty(0, np.int64)
    part = report.judged.take(group.rows)
    if part.task == "quantities":
        wrong = abs(part.predicted - part.truth)
    else:
        missed = (part.predicted != part.truth).astype(np.float64)
        places = np.arange(len(part))
        sure = missed if part.probabilities is None else part.probabilities[places, part.predicted]
        wrong = missed * (1 + sure)
    order = np.argsort(-wrong, kind="stable")
    return np.asarray(group.rows[order[wrong[order] > 0][:most]])


def write_evaluation(
    path: Path, report: GroupMetrics, about: AboutPredictions, examples: ShownExamples | None = None
) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        report: how the groups fare.
        about: where the predictions come from.
        examples: mistakes of the worst group to show.

    Returns:
        Where the page is.

    Raises:
        CheckpointError: if the page can't be written; an earlier one is left alone.
    """
    single = [family for family in report.families if len(family) == 1]
    together = [family for family in report.families if len(family) > 1]
    lead = note("Worst first by the first metric. Click a header to sort by it. Below each value: its 95% interval.")
    parts = [
        _headline(report, about),
        section("All examples", _overall(report), *map(note, about.notes), id_="overall"),
        *(
            section(f"By {family[0]}", lead, metrics_by_group(report, family), id_=f"by-{place}")
            for place, family in enumerate(single)
        ),
        _together(report, together),
        section(
            "Gaps between groups",
            gaps_table(report, single),
            *_parity(report),
            _gaps_together(report, together),
            id_="gaps",
        ),
        _calibration(report),
        None if examples is None else _examples(report, examples),
        _about(about),
    ]
    return write_page(path, f"{about.name} by group", *parts)


def _headline(report: GroupMetrics, about: AboutPredictions) -> Html:
    metric, worst = report.metrics[0], headline_group(report)
    over, beside = "holdfast evaluate", counted(len(report.judged), "example")
    checks = health_banner(health(report))
    if worst is None:
        return opening(over, beside, about.name, [about.by], checks)
    value = worst.values[metric.name]
    shown = number_in_words(metric, value.value)
    interval = ""
    if value.low is not None and value.high is not None:
        interval = f", 95% interval {number_in_words(metric, value.low)} to {number_in_words(metric, value.high)}"
    small = any(0 < group.count < FEW for group in report.groups)
    among = f"; smaller groups than {FEW} examples left out" if small and worst.count >= FEW else ""
    large = large_number(
        f"Worst group's {metric.title}" if metric.title.isupper() else f"Worst group's {metric.title.lower()}",
        shown.removesuffix("%"),
        "%" if metric.percent else None,
        [tag("b", _said(worst)), f", {counted(worst.count, 'example')}{interval}{among}"],
    )
    return opening(over, beside, about.name, [about.by], checks, hero(large, findings(*_sentences(report))))


def _said(group: GroupValues) -> str:
    """A group with what it is by."""
    return ", ".join(f"{name}: {level}" for name, level in zip(group.attributes, group.levels, strict=True))


def _sentences(report: GroupMetrics) -> list[str]:
    metric = report.metrics[0]
    sentences = [f"{metric.title} of all examples: {in_words(metric, report.overall)}."]
    for family in [family for family in report.families if len(family) == 1][:_IN_HEADLINE]:
        known = [group for group in report.by(*family) if group.values[metric.name].known]
        if len(known) > 1:
            best, worst = report.best(metric.name, *family), report.worst(metric.name, *family)
            parity = report.parity(*family)
            odds = f" Equalized odds difference: {parity['equalized_odds_difference']:.3f}." if parity else ""
            sentences.append(
                f"By {family[0]}: {worst.name} has {in_words(metric, worst)} and {best.name} {in_words(metric, best)}"
                f"{_CHANCE.get(may_be_chance(report, *family), '')}.{odds}"
            )
    return sentences


def _overall(report: GroupMetrics) -> Html:
    cards = []
    for metric in report.metrics:
        value = report.overall.values[metric.name]
        if value.known:
            ends = None
            if value.low is not None and value.high is not None:
                low, high = (number_in_words(metric, end) for end in (value.low, value.high))
                ends = tag("dd", f"95% interval {low} to {high}", class_="note")
            cards.append(tag("div", tag("dt", metric.title), tag("dd", in_words(metric, report.overall)), ends))
    return tag("dl", *cards, class_="numbers")


def _together(report: GroupMetrics, families: Sequence[tuple[str, ...]]) -> Html | None:
    if not families:
        return None
    tables = [
        folded(
            f"{' and '.join(family)}: {counted(sum(group.count > 0 for group in report.by(*family)), 'group')}",
            metrics_by_group(report, family),
        )
        for family in families
    ]
    return section("By attributes together", *tables, id_="together")


def _gaps_together(report: GroupMetrics, families: Sequence[tuple[str, ...]]) -> Html | None:
    return folded("Gaps between groups by attributes together", gaps_table(report, families)) if families else None


def _parity(report: GroupMetrics) -> list[Html]:
    table = parity_table(report)
    if table is None:
        return []
    lead = (
        "Demographic parity compares how often the positive class is predicted, equal opportunity its recall, "
        "equalized odds the larger gap of recall and false positive rate."
    )
    return [tag("h3", "Parity"), note(lead), table]


def _calibration(report: GroupMetrics) -> Html | None:
    """How often the positive class was right by its probability, of all examples and of the groups furthest off."""
    judged = report.judged
    if judged.probabilities is None or not judged.binary or not report.families:
        return None
    groups = [group for group in report.by(*report.families[0]) if group.count >= _BINS]
    off = sorted(((_off(judged, group.rows), group) for group in groups), key=lambda pair: -pair[0])
    lines = [_curve("all examples", judged, np.arange(len(judged)), "named-0")]
    lines += [_curve(group.name, judged, group.rows, f"named-{place + 1}") for place, (_, group) in enumerate(off[1:3])]
    lines += [_curve(group.name, judged, group.rows, "worst") for _, group in off[:1]]
    axis = Axis(0.0, 1.0, tuple((value, percent(value, 0)) for value in round_numbers(0.0, 1.0)))
    diagonal = Line("as said", ((0.0, 0.0), (1.0, 1.0)), "other")
    positive = judged.class_names[judged.positive]
    caption = join(
        [
            f"Share of {positive!r} by its probability, in {_BINS} bins; the thin line is where probabilities are "
            f"right. Named are the groups by {report.families[0][0]} that are furthest off."
        ]
    )
    label = f"Calibration of {positive} for all examples and {counted(len(lines) - 1, 'group')}"
    figure = chart(
        "Calibration", label, [diagonal, *lines], x=axis, y=axis, marks=[], caption=caption,
        along="probability that was predicted",
    )  # fmt: skip
    return section("Are probabilities right?", tag("div", figure, class_="figures"), id_="calibration")


def _bins(judged: Judged, rows: Ints) -> tuple[Any, Any, Any]:
    """Weight, mean probability and share of the positive class in even bins."""
    assert judged.probabilities is not None
    sure, weights = judged.probabilities[rows, judged.positive], judged.weights[rows]
    bins = np.searchsorted(np.linspace(0, 1, _BINS + 1)[1:-1], sure)
    of_bins = np.bincount(bins, weights, _BINS)
    said = np.bincount(bins, weights * sure, _BINS)
    true = np.bincount(bins, weights * (judged.truth[rows] == judged.positive), _BINS)
    filled = of_bins > 0
    return of_bins[filled], said[filled] / of_bins[filled], true[filled] / of_bins[filled]


def _off(judged: Judged, rows: Ints) -> float:
    weights, said, true = _bins(judged, rows)
    return float((weights * abs(said - true)).sum() / weights.sum())


def _curve(name: str, judged: Judged, rows: Ints, kind: str) -> Line:
    _, said, true = _bins(judged, rows)
    return Line(name, tuple(zip(said.tolist(), true.tolist(), strict=True)), kind)


def _examples(report: GroupMetrics, examples: ShownExamples) -> Html | None:
    worst = headline_group(report)
    if worst is None or not len(examples.rows):
        return None
    heads = [tag("th", name, scope="col") for name in ("Row", "True", "Predicted", *examples.columns)]
    rows = []
    for row, cells in zip(examples.rows, examples.cells, strict=True):
        truth, said = (_value(report.judged, column, row) for column in ("truth", "predicted"))
        shown = [tag("td", text) for text in (truth, said, *cells)]
        rows.append(tag("tr", tag("th", number(row + 1), scope="row"), *shown))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    lead = tag("p", tag("b", _said(worst)), ", the furthest off first.", class_="lead")
    return section("Mistakes of the worst group", lead, tag("div", table, **scrolling("Mistakes")), id_="examples")


def _value(judged: Judged, column: str, row: int) -> str:
    value = getattr(judged, column)[row]
    if judged.task == "quantities":
        return f"{value:g}"
    sure = ""
    if column == "predicted" and judged.probabilities is not None:
        sure = f" ({percent(float(judged.probabilities[row, value]))})"
    return f"{judged.class_names[value]}{sure}"


def _about(about: AboutPredictions) -> Html:
    again = [tag("h3", "Make this page again"), code(about.command)] if about.command else []
    return section("These predictions", facts_table(about.facts), *again, id_="facts")
