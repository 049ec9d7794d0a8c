"""The figures of a report: inline SVG that stretches with the page, its labels real text beside it.

An SVG that scales as a whole has unreadable labels on a phone. Here only the lines stretch (their widths stay), and the
labels are HTML placed by percentages, so the same markup is crisp at any width, follows the colours of the page and
can be read aloud. The accent colour always means the worst group; all other lines are ink or grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import counted
from holdfast.report.html.markup import Html, join, number, percent, tag
from holdfast.report.pages.run_record import RunRecord
from holdfast.training.evaluation.group_report import GroupReport

#: Groups whose lines are emphasised and named; with more groups than `_ALL_NAMED`, the rest is drawn thin and grey.
_NAMED = 4
_ALL_NAMED = 6
_FULL_HEIGHT_MARKS = 12
_LABEL_GAP = 6.5
_LABEL_LENGTH = 16  # characters that there is room for beside a drawing
#: Of very many groups: the lines that show how they are spread, and which decile each is.
_SPREAD = {"median": 5, "lowest tenth": 1, "worst group": 0}
#: Ticks of a strip; more could not be told apart.
_TICKS = 400
_SIZE = 1000


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        name: what it shows.
        points: (x, y) pairs.
        kind: ``worst``, ``named-0`` and on, or ``other``; decides how it looks.
        end: what is written beside its name.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    kind: str
    end: str = ""


@dataclass(frozen=True)
class Axis:
    """An axis: its ends and its labelled places."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """How far along the axis `value` is, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Mark:
    """A vertical line: the ``chosen`` epoch, a change of ``plan``, or a ``restart``."""

    x: float
    kind: str
    text: str = ""


def accuracy_figure(record: RunRecord) -> Html:
    """Validation accuracy of every group after each epoch.

    The worst group of the headline has the accent; among many groups, the next worst of the chosen epoch are named and
    the others are a grey backdrop.

    Args:
        record: a run with at least one epoch.
    """
    assert record.report is not None
    reports = [GroupReport.from_json(event["validation"]) for event in record.epochs]
    if any(report.folded is not None for report in reports):
        return _spread_figure(record, reports)
    worst = record.report.worst.name
    paths = {
        score.name: tuple(
            (event["epoch"] + 1.0, accuracy)
            for event, report in zip(record.epochs, reports, strict=True)
            if (accuracy := report.by_group[place].accuracy) is not None
        )
        for place, score in enumerate(reports[0].by_group)
    }
    paths = {name: points for name, points in paths.items() if points}
    chosen = float((record.best_epoch or 0) + 1)
    at_choice = {name: dict(points).get(chosen, points[-1][1]) for name, points in paths.items()}
    others = sorted((name for name in paths if name != worst), key=at_choice.__getitem__)
    named = others if len(paths) <= _ALL_NAMED else others[: _NAMED - 1]
    kinds = {name: f"named-{place}" for place, name in enumerate(named)} | {worst: "worst"}
    lines = [
        Line(name, paths[name], kinds.get(name, "other"), percent(paths[name][-1][1], 0))
        for name in [*reversed(others), worst]
        if name in paths
    ]
    lowest = min(y for line in lines for _, y in line.points)
    rest = len(paths) - len(named) - (worst in paths)
    caption = join(
        [
            "Accuracy of each group on the validation set after each epoch. ",
            f"The other {number(rest)} groups are grey. " if rest > 0 else None,
            _marks_in_words(record),
        ]
    )
    label = f"Validation accuracy by group over {len(record.epochs)} epochs; " + "; ".join(
        f"{line.name} {line.end}" for line in reversed(lines) if line.kind != "other"
    )
    low = 0.0 if lowest < 0.5 else math.floor(lowest * 10) / 10 - (0.1 if lowest >= 1 else 0)
    y = Axis(low, 1.0, tuple((value, percent(value, 0)) for value in round_numbers(low, 1.0)))
    return chart(
        "Validation accuracy by group", label, lines, x=_epoch_axis(record), y=y, marks=_marks(record), caption=caption
    )


def _spread_figure(record: RunRecord, reports: Sequence[GroupReport]) -> Html:
    """The same of very many groups: how their accuracies are spread, the worst with the accent."""
    paths: dict[str, list[tuple[float, float]]] = {name: [] for name in _SPREAD}
    for event, report in zip(record.epochs, reports, strict=True):
        if report.folded is not None:
            for name, place in _SPREAD.items():
                paths[name].append((event["epoch"] + 1.0, report.folded.deciles[place]))
    lines = [
        Line(name, tuple(points), "worst" if place == 0 else f"named-{place // 5}", percent(points[-1][1], 0))
        for (name, points), place in zip(paths.items(), _SPREAD.values(), strict=True)
    ]
    count = max(report.folded.groups for report in reports if report.folded is not None)
    label = f"Validation accuracy of {number(count)} groups over {len(record.epochs)} epochs; " + "; ".join(
        f"{line.name} {line.end}" for line in lines
    )
    what = f"Accuracies of {number(count)} groups on the validation set after each epoch: the worst one's, and those "
    caption = join([what, "that a tenth and a half of the groups stay below. ", _marks_in_words(record)])
    y = Axis(0.0, 1.0, tuple((value, percent(value, 0)) for value in round_numbers(0.0, 1.0)))
    title = "Validation accuracy by group"
    return chart(title, label, lines, x=_epoch_axis(record), y=y, marks=_marks(record), caption=caption)


def loss_figure(record: RunRecord) -> Html:
    """Mean training loss of each epoch."""
    points = tuple((event["epoch"] + 1.0, float(event["loss"])) for event in record.epochs)
    losses = [loss for _, loss in points]
    ticks = round_numbers(min(0.0, *losses), max(losses) or 1.0)
    line = Line("training loss", points, "named-0")
    y = Axis(ticks[0], ticks[-1], tuple((value, f"{value:g}") for value in ticks))
    label = f"Training loss from {points[0][1]:.3g} to {points[-1][1]:.3g}"
    caption = join(["Mean over each epoch of the loss that was minimised, weights of the method included."])
    marks = [mark for mark in _marks(record, labelled=False) if mark.kind != "plan"]
    return chart(
        "Training loss", label, [line], x=_epoch_axis(record), y=y, marks=marks, caption=caption, labelled=False
    )


def active_figure(record: RunRecord) -> Html:
    """How many training examples took part, as the plan changed."""
    of = max(plan["of"] for plan in record.plans)
    end = float(len(record.epochs)) or 1.0
    points: list[tuple[float, float]] = []
    for plan in record.plans:
        when = record.when(plan["step"])
        if points:
            points.append((when, points[-1][1]))
        points.append((when, float(plan["active"])))
    points.append((end, points[-1][1]))
    line = Line("active", tuple(points), "named-0")
    ticks = round_numbers(0.0, float(of))
    y = Axis(0.0, ticks[-1], tuple((value, number(value)) for value in ticks))
    label = f"Active training examples, from {number(points[0][1])} to {number(points[-1][1])} of {number(of)}"
    caption = join([f"Training examples that take part, of {number(of)}. ", _marks_in_words(record)])
    return chart(
        "Examples trained on",
        label,
        [line],
        x=_epoch_axis(record),
        y=y,
        marks=_marks(record),
        caption=caption,
        labelled=False,
    )


def strip(report: GroupReport) -> Html:
    """All groups on one scale from 0 to 100%, the worst with its interval."""
    worst = report.worst
    assert worst.low is not None and worst.high is not None and worst.accuracy is not None
    others = [score.accuracy for score in report.by_group if score is not worst and score.accuracy is not None]
    marked = others if len(others) <= _TICKS else sorted({round(_TICKS * other) / _TICKS for other in others})
    ticks = [tag("line", x1=_at(accuracy), x2=_at(accuracy), y1=260, y2=740, class_="tick") for accuracy in marked]
    low, high, at = _at(worst.low), _at(worst.high), _at(worst.accuracy)
    many = number(len(others) + 1)
    drawing = _svg(
        f"Accuracies of {many} groups from 0 to 100%; the worst, {worst.name}, at {percent(worst.accuracy)}",
        tag("line", x1=0, x2=_SIZE, y1=500, y2=500, class_="grid"),
        *ticks,
        tag("rect", x=low, y=0, width=round(high - low, 1), height=_SIZE, class_="range"),
        tag("line", x1=at, x2=at, y1=0, y2=_SIZE, class_="tick worst"),
    )
    ends = tag("div", tag("span", "0%"), tag("span", "each tick is a group"), tag("span", "100%"), class_="ends")
    return tag("div", drawing, ends, class_="strip")


def interval_bar(share: float, low: float, high: float) -> Html:
    """A bar up to `share` with a whisker over its interval; the numbers stand beside it, so it is not read aloud."""
    a, b = _at(low), _at(high)
    return tag(
        "svg",
        tag("rect", x=0, y=300, width=_SIZE, height=400, class_="track"),
        tag("rect", x=0, y=300, width=_at(share), height=400, class_="bar"),
        tag("line", x1=a, x2=b, y1=500, y2=500, class_="whisker"),
        tag("line", x1=a, x2=a, y1=250, y2=750, class_="whisker"),
        tag("line", x1=b, x2=b, y1=250, y2=750, class_="whisker"),
        viewBox=f"0 0 {_SIZE} {_SIZE}",
        preserveAspectRatio="none",
        class_="interval",
        aria_hidden="true",
    )


def histogram(counts: Sequence[int], label: str, *, worst: bool = False) -> Html:
    """Bars side by side, the highest as high as the drawing; any that isn't empty can be seen.

    Args:
        counts: a count per bar, from the left.
        label: what it shows, in a sentence, for those who don't see it.
        worst: whether it has the accent.

    Returns:
        The drawing, without axes.
    """
    width, highest = _SIZE / len(counts), max(*counts, 1)
    bars = []
    for place, count in enumerate(counts):
        height = max(_at(count / highest), 30.0)
        if count:
            bars.append(
                tag(
                    "rect",
                    x=round(place * width + 0.08 * width, 1),
                    y=round(_SIZE - height, 1),
                    width=round(0.84 * width, 1),
                    height=height,
                    class_="bar worst" if worst else "bar",
                )
            )
    floor = tag("line", x1=0, x2=_SIZE, y1=_SIZE, y2=_SIZE, class_="grid")
    return _svg(label, floor, *bars)


def _at(share: float) -> float:
    return round(share * _SIZE, 1)


def _svg(label: str, *drawn: Html) -> Html:
    return tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {_SIZE} {_SIZE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def chart(
    title: str,
    label: str,
    lines: Sequence[Line],
    *,
    x: Axis,
    y: Axis,
    marks: Sequence[Mark],
    caption: Html,
    along: str = "epochs completed",
    labelled: bool = True,
) -> Html:
    """A chart with its axes, marks and caption.

    Args:
        title: above it.
        label: what it shows, in a sentence, for those who don't see it.
        lines: what is drawn.
        x: the horizontal axis.
        y: the vertical axis.
        marks: vertical lines.
        caption: below it.
        along: what the horizontal axis counts.
        labelled: whether emphasised lines have their names at their ends.

    Returns:
        The figure.
    """
    grid = [
        tag("line", x1=0, x2=_SIZE, y1=_at(1 - y.share(v)), y2=_at(1 - y.share(v)), class_="grid") for v, _ in y.ticks
    ]
    named = [line for line in lines if line.kind != "other"] if labelled else []
    plot = tag(
        "div",
        _svg(label, *grid, *_mark_lines(marks, x), *(_line(line, x, y) for line in lines)),
        *(tag("span", text, class_="y", style=f"top:{100 - 100 * y.share(v):.2f}%") for v, text in y.ticks),
        *(tag("span", text, class_="x", style=f"left:{100 * x.share(v):.2f}%") for v, text in x.ticks),
        *(_mark_label(mark, x) for mark in marks if mark.text),
        *_end_labels(named, y),
        class_="plot",
    )
    legend = [
        tag("li", _swatch(line.kind), tag("span", line.name), tag("b", line.end), class_=line.kind)
        for line in reversed(named)
    ]
    left = 1.0 + 0.45 * max(len(text) for _, text in y.ticks)
    right = min(11.0, 4 + 0.42 * max(len(line.name) for line in named)) if named else 0.5
    room = f"--left:{left:.2f}rem;--right:{right:.2f}rem"
    return tag(
        "figure",
        tag("h3", title),
        tag("div", plot, class_="chart", style=room),
        tag("p", along, class_="axis", style=room),
        tag("ul", *legend, class_="legend") if legend else None,
        tag("figcaption", caption),
    )


def _line(line: Line, x: Axis, y: Axis) -> Html:
    pairs = [f"{_at(x.share(a))} {_at(1 - y.share(b))}" for a, b in line.points]
    path = "M" + "L".join(pairs) + ("h0" if len(pairs) == 1 else "")  # a move alone draws nothing, not even a dot
    return tag("path", tag("title", f"{line.name} {line.end}".strip()), d=path, class_=f"line {line.kind}")


def _swatch(kind: str) -> Html:
    stroke = tag("path", d="M0 5H24", class_=f"line {kind}")
    return tag("svg", stroke, viewBox="0 0 24 10", width=24, height=10, aria_hidden="true")


def _end_labels(lines: Sequence[Line], y: Axis) -> list[Html]:
    """Names beside the ends of lines, pushed apart where they would overlap."""
    wanted = sorted(((100 - 100 * y.share(line.points[-1][1]), line) for line in lines), key=lambda pair: pair[0])
    # From the top down each label is pushed below the one before it; if the last then hangs below the drawing, a second
    # pass from the bottom up pushes them back.
    placed: list[float] = []
    for top, _ in wanted:
        placed.append(max(top, placed[-1] + _LABEL_GAP) if placed else top)
    excess = max(0.0, placed[-1] - 100) if placed else 0.0
    for place in range(len(placed) - 1, -1, -1):
        limit = 100.0 if place == len(placed) - 1 else placed[place + 1] - _LABEL_GAP
        placed[place] = min(placed[place], limit) if excess else placed[place]
    return [
        tag(
            "span",
            tag("span", _abbreviated(line.name)),
            " ",
            tag("b", line.end),
            class_=f"end {line.kind}",
            style=f"top:{top:.2f}%",
            title=line.name,
            aria_hidden="true",
        )
        for top, (_, line) in zip(placed, wanted, strict=True)
    ]


def _abbreviated(name: str) -> str:
    """A name as there is room for beside a drawing: groups of one class begin alike, so both of its ends are kept."""
    return name if len(name) <= _LABEL_LENGTH else f"{name[:5].rstrip()}…{name[5 - _LABEL_LENGTH + 1 :].lstrip()}"


def _mark_lines(marks: Sequence[Mark], x: Axis) -> list[Html]:
    """Marks over the whole height; where plans change all the time, only ticks along the bottom."""
    many = sum(mark.kind == "plan" for mark in marks) > _FULL_HEIGHT_MARKS
    drawn = []
    for mark in marks:
        at, top = _at(x.share(mark.x)), 960 if many and mark.kind == "plan" else 0
        drawn.append(tag("line", x1=at, x2=at, y1=top, y2=_SIZE, class_=f"mark {mark.kind}"))
    return drawn


def _mark_label(mark: Mark, x: Axis) -> Html:
    at = 100 * x.share(mark.x)
    return tag(
        "span", mark.text, class_=f"marked {mark.kind}", style=f"left:{at:.2f}%;transform:translateX(-{at:.2f}%)"
    )


def _marks(record: RunRecord, *, labelled: bool = True) -> list[Mark]:
    changes = [Mark(record.when(plan["step"]), "plan") for plan in record.plans[1:]]
    restarts = [Mark(float(epoch), "restart") for epoch in record.restarts]
    best = record.best_epoch
    prefix = "chosen" if record.finished else "best so far"
    text = f"{prefix}: epoch {best + 1}" if labelled and best is not None else ""
    return changes + restarts + ([] if best is None else [Mark(best + 1.0, "chosen", text)])


def _marks_in_words(record: RunRecord) -> str:
    sentence = f"The dashed line is the {'chosen epoch' if record.finished else 'best epoch so far'}"
    if len(record.plans) > 1:
        sentence += f"; dotted: {counted(len(record.plans) - 1, 'change')} of plan"
    if record.restarts:
        sentence += "; solid: training restarted from scratch"
    return sentence + "."


def _epoch_axis(record: RunRecord) -> Axis:
    end = max(len(record.epochs), 1)
    step = max(1, math.ceil(end / 6))
    step = next(nice for scale in (1, 10, 100, 1000) for nice in (scale, 2 * scale, 5 * scale) if nice >= step)
    return Axis(0.0, float(end), tuple((float(epoch), str(epoch)) for epoch in range(0, end + 1, step)))


def round_numbers(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """Four to six round numbers from `low` to at least `high`, the first being `low`; it alone if `high` is no more."""
    if high <= low:
        return (low,)
    rough = (high - low) / about
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= rough * 0.999)
    return tuple(round(low + place * step, 10) for place in range(math.ceil((high - low) / step - 1e-6) + 1))
