"""The figures of a federation's page: client scores by model, curves over rounds, robustness against fairness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import counted
from holdfast.report.html.charts import Axis, Line, chart
from holdfast.report.html.markup import Html, join, number, tag
from holdfast.report.pages.federation.measure import Measure
from holdfast.report.pages.federation.record import SHARED, ClientRows

_BINS = 25
_SIZE = 1000
_NAMED = 5
#: Looks of dots that the style knows, and the height of a name in percent of the plot's.
_LOOKS = 6
_NAME_HEIGHT = 5.0


@dataclass(frozen=True)
class Point:
    """A model in the plane of robustness and fairness.

    Attributes:
        name: of the model.
        mean: mean score of benign clients: robustness.
        std: its spread over them: fairness, the lower the better.
        group: what it belongs to, for instance its run; points of one group look the same.
    """

    name: str
    mean: float
    std: float
    group: int = 0


def distribution(clients: ClientRows, measure: Measure) -> Html:
    """A histogram of client scores per model, all on one scale; the worst tenth of clients has the accent."""
    scores = {label: clients.accuracies(label) for label in clients.models}
    axis = Axis(0.0, 1.0, ((0.0, "0%"), (1.0, "100%")))
    if not measure.is_share:
        axis = measure.axis(value for values in scores.values() for value in values)
    binned = {label: _bins(values, axis, measure) for label, values in scores.items()}
    highest = max(max(map(sum, zip(*both, strict=True))) for both in binned.values())
    rows = [_distribution_row(label, scores[label], binned[label], highest, axis, measure) for label in clients.models]
    low, high = axis.ticks[0][1], axis.ticks[-1][1]
    ends = tag("div", tag("span", low), tag("span", f"{measure.name} of a client"), tag("span", high), class_="ends")
    caption = (
        f"Test {measure.name} of {counted(len(clients.counted), 'benign client')}; each bar counts clients. "
        "The accent is the worst tenth, the line is the mean."
    )
    return tag(
        "figure",
        tag("h3", f"Client {measure.name} by model"),
        *rows,
        ends,
        tag("figcaption", caption),
        class_="clients",
    )


def curves(history: Sequence[Mapping[str, Any]], rounds: int, measure: Measure) -> Html:
    """Mean score of benign clients and its spread over the rounds, a line per model."""
    means = _lines(history, "mean", measure)
    stds = _lines(history, "std", measure)
    x = _round_axis(rounds)
    return tag(
        "div",
        chart(
            f"Mean {measure.name}",
            f"Mean test {measure.name} of benign clients over the rounds; " + _ends_in_words(means),
            means,
            x=x,
            y=measure.axis(y for line in means for _, y in line.points),
            marks=[],
            caption=join(["Robustness: the mean over benign clients, after so many rounds."]),
            along="rounds completed",
        ),
        chart(
            "Spread",
            f"Standard deviation of {measure.name} over benign clients; " + _ends_in_words(stds),
            stds,
            x=x,
            y=measure.spread_axis(y for line in stds for _, y in line.points),
            marks=[],
            caption=join(["Fairness: standard deviation over benign clients. Lower is fairer."]),
            along="rounds completed",
        ),
        class_="figures equal",
    )


def scatter(points: Sequence[Point], title: str, caption: str, measure: Measure, letter: float = 1.9) -> Html:
    """Models in the plane of robustness and fairness (left is better).

    Args:
        points: the models.
        measure: what they are scored by.
        title: above it.
        caption: below it.
        letter: width of a letter in percent of the plot's.

    Returns:
        The figure.
    """
    spread = measure.spread_axis(1.15 * point.std for point in points)
    mean = measure.near_axis(point.mean for point in points)
    grid = [
        tag("line", x1=0, x2=_SIZE, y1=_at(1 - mean.share(v)), y2=_at(1 - mean.share(v)), class_="grid")
        for v, _ in mean.ticks
    ]
    grid += [
        tag("line", x1=_at(spread.share(v)), x2=_at(spread.share(v)), y1=0, y2=_SIZE, class_="grid")
        for v, _ in spread.ticks
    ]
    written = [(point.name, measure.text(point.mean), measure.text(point.std)) for point in points]
    sentence = "; ".join(f"{name}: mean {mean_text}, spread {std_text}" for name, mean_text, std_text in written)
    drawing = tag(
        "svg",
        *grid,
        viewBox=f"0 0 {_SIZE} {_SIZE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"Mean {measure.name} against its spread over clients. {sentence}",
    )
    left = 1.0 + 0.45 * max(len(text) for _, text in mean.ticks)
    room = f"--left:{left:.2f}rem;--right:1rem"
    plot = tag(
        "div",
        drawing,
        *(tag("span", text, class_="y", style=f"top:{100 - 100 * mean.share(v):.2f}%") for v, text in mean.ticks),
        *(tag("span", text, class_="x", style=f"left:{100 * spread.share(v):.2f}%") for v, text in spread.ticks),
        *_dots(points, spread, mean, letter),
        class_="plot scatter",
    )
    return tag(
        "figure",
        tag("h3", title) if title else None,
        tag("div", plot, class_="chart", style=room),
        tag("p", "standard deviation over clients; left is fairer", class_="axis", style=room),
        tag("figcaption", caption),
    )


def _dots(points: Sequence[Point], spread: Axis, mean: Axis, letter: float) -> list[Html]:
    """Dots with their names, each where it covers neither a dot nor another name, as near to its dot as can be."""
    places = {point: (100 * spread.share(point.std), 100 - 100 * mean.share(point.mean)) for point in points}
    taken = [(x - 1.5, x + 1.5, y) for x, y in places.values()]
    drawn = []
    for point in sorted(points, key=lambda one: -one.mean):
        x, y = places[point]
        width = letter * len(point.name) + 2
        spots = [
            (side, y + step * sign)
            for step in range(0, 60, 3)
            for side in ("right", "left")
            for sign in ((1,) if step == 0 else (1, -1))
        ]
        spans = {"right": (x + 1.6, x + 1.6 + width), "left": (x - 1.6 - width, x - 1.6)}
        free = (
            (side, top)
            for side, top in spots
            if spans[side][0] >= 0 and spans[side][1] <= 100 and 0 <= top <= 100
            if not any(
                spans[side][0] < end and start < spans[side][1] and abs(top - other) < _NAME_HEIGHT
                for start, end, other in taken
            )
        )
        side, top = next(free, ("right", y))
        taken.append((*spans[side], top))
        shade = f"dot group-{point.group % _LOOKS}"
        drawn.append(tag("i", class_=shade, style=f"left:{x:.2f}%;top:{y:.2f}%", aria_hidden="true"))
        style = f"left:{x:.2f}%;top:{top:.2f}%"
        drawn.append(tag("span", point.name, class_=f"named {side}", style=style, aria_hidden="true"))
    return drawn


def lambda_bars(chosen: Mapping[str, int]) -> Html:
    """How many clients chose each lambda."""
    most = max(chosen.values())
    rows = [
        tag(
            "tr",
            tag("th", value, scope="row"),
            tag("td", number(count)),
            tag("td", tag("span", class_="length", style=f"width:{100 * count / most:.1f}%"), class_="wide"),
        )
        for value, count in chosen.items()
    ]
    heads = [tag("th", name, scope="col") for name in ("Lambda", "Clients", "")]
    return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="lambdas")


def _bins(scores: Sequence[float], axis: Axis, measure: Measure) -> tuple[list[int], list[int]]:
    """Clients per bin: the worst tenth (one at least), and the others."""
    ordered = sorted(scores, key=measure.goodness)
    worst = max(len(ordered) // 10, 1)
    counts: tuple[list[int], list[int]] = ([0] * _BINS, [0] * _BINS)
    for place, score in enumerate(ordered):
        counts[place >= worst][min(int(axis.share(score) * _BINS), _BINS - 1)] += 1
    return counts


def _distribution_row(  # noqa: PLR0917
    label: str, scores: Sequence[float], bins: tuple[list[int], list[int]], highest: int, axis: Axis, measure: Measure
) -> Html:
    mean = sum(scores) / len(scores)
    std = math.sqrt(sum((value - mean) ** 2 for value in scores) / len(scores))
    worst_score = measure.text(min(scores, key=measure.goodness))
    width = _SIZE / _BINS
    bars: list[Html] = []
    for place, (worst, rest) in enumerate(zip(*bins, strict=True)):
        base = 0
        for count, kind in ((worst, "bar worst"), (rest, "bar")):
            if count:
                height = round(_SIZE * count / highest, 1)
                x, y = round((place + 0.06) * width, 1), round(_SIZE * (1 - base / highest) - height, 1)
                bars.append(tag("rect", x=x, y=y, width=round(0.88 * width, 1), height=height, class_=kind))
            base += count
    about = f"mean {measure.text(mean)}, standard deviation {measure.text(std)}"
    sentence = f"{label}: {about}, {'highest' if measure.falls else 'lowest'} {worst_score}"
    drawing = tag(
        "svg",
        *bars,
        tag("line", x1=0, x2=_SIZE, y1=_SIZE, y2=_SIZE, class_="grid"),
        tag("line", x1=_at(axis.share(mean)), x2=_at(axis.share(mean)), y1=0, y2=_SIZE, class_="mark chosen"),
        viewBox=f"0 0 {_SIZE} {_SIZE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=sentence,
    )
    head = tag("p", tag("b", label), f"{measure.text(mean)} ± {measure.text(std)}")
    return tag("div", head, drawing, class_="histogram tall")


def _lines(history: Sequence[Mapping[str, Any]], key: str, measure: Measure) -> list[Line]:
    labels = list(dict.fromkeys(label for entry in history for label in entry if label != "round"))
    lines = []
    for label in reversed(labels[: _NAMED + 1]):
        points = tuple(
            (float(entry["round"]), float(entry[label][key]))
            for entry in history
            if label in entry and math.isfinite(entry[label][key])
        )
        kind = "named-4" if label == SHARED else f"named-{min(labels.index(label) - 1, 3)}"
        if points:
            lines.append(Line(label, points, kind, measure.text(points[-1][1])))
    return lines


def _ends_in_words(lines: Iterable[Line]) -> str:
    return "; ".join(f"{line.name} {line.end}" for line in lines)


def _round_axis(rounds: int) -> Axis:
    step = max(1, math.ceil(rounds / 5))
    scale = 10 ** (len(str(step)) - 1)
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= step)
    return Axis(0.0, float(rounds), tuple((float(at), number(at)) for at in range(0, rounds + 1, step)))


def _at(share: float) -> float:
    return round(share * _SIZE, 1)
