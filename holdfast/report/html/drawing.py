"""A figure of a document as one SVG file: panels side by side, measured points over computed curves.

Unlike the charts of a report (`holdfast.report.html.charts`), which follow the page they stand in, a drawing is a file
of its own with a white ground, for a folder of results, a documentation page or a slide. Its text is real text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.report.html.charts import Axis
from holdfast.report.html.markup import Html, tag

#: Colours that can be told apart without seeing red and green, and in print.
COLOURS = {"ink": "#1b1d21", "grey": "#7d848c", "teal": "#0f766e", "orange": "#c2570c", "blue": "#1d5fa8"}

_SOFT, _RULE = "#5c6269", "#e3e3de"
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
_WIDTH, _PLOT_HEIGHT = 960, 290
_LEFT, _RIGHT, _TOP, _BELOW = 62, 18, 100, 76
_LINE, _LETTER = 18, 7.0


@dataclass(frozen=True)
class Curve:
    """Something drawn in a panel.

    Attributes:
        name: what it is, for the legend; curves of one name in several panels share an entry.
        points: (x, y) pairs.
        colour: one of `COLOURS`.
        look: a ``line``, a ``dashed`` line, ``dots``, or a ``band``.
        upper: the upper edge of a band, whose lower edge is `points`.
        text: written beside its last point, where the legend would be far away.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str = "ink"
    look: str = "line"
    upper: tuple[tuple[float, float], ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Panel:
    """A plot with its axes.

    Attributes:
        title: above it.
        curves: what is drawn, the first at the back.
        x: the horizontal axis.
        y: the vertical axis.
        along: what the horizontal axis says.
        up: what the vertical axis says.
        marks: places on the horizontal axis to point out, with what is written above them.
    """

    title: str
    curves: tuple[Curve, ...]
    x: Axis
    y: Axis
    along: str
    up: str
    marks: tuple[tuple[float, str], ...] = ()


def drawing(title: str, described: str, panels: Sequence[Panel], notes: Sequence[str] = ()) -> str:
    """An SVG file.

    Args:
        title: of the whole figure.
        described: what it shows, in a sentence, for those who don't see it.
        panels: from the left.
        notes: paragraphs below the legend.

    Returns:
        The file's text.
    """
    room = (_WIDTH - _RIGHT) / len(panels)
    width = room - _LEFT - _RIGHT
    bottom = _TOP + _PLOT_HEIGHT + _BELOW
    entries = {curve.name: curve for panel in panels for curve in panel.curves if curve.name}
    legend, rows = _legend(list(entries.values()), bottom)
    below = bottom + rows * _LINE + 12
    letters = int((_WIDTH - _LEFT - _RIGHT) / _LETTER)
    lines = [line for note in notes for line in textwrap.wrap(note, letters)]
    height = below + len(lines) * _LINE + 6
    drawn = [
        tag("title", title),
        tag("desc", described),
        tag("rect", width=_WIDTH, height=height, fill="#ffffff"),
        _text(title, _LEFT, 30, size=16, weight=600),
        *(_panel(panel, _LEFT + place * room, width) for place, panel in enumerate(panels)),
        *legend,
        *(_text(line, _LEFT, below + place * _LINE, colour=_SOFT) for place, line in enumerate(lines)),
    ]
    svg = tag(
        "svg",
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
        role="img",
        font_family=_FONT,
        font_size=12,
    )
    return svg.replace("><", ">\n<") + "\n"


def _panel(panel: Panel, left: float, width: float) -> Html:
    def across(value: float) -> float:
        return round(left + width * panel.x.share(value), 1)

    def down(value: float) -> float:
        return round(_TOP + _PLOT_HEIGHT * (1 - panel.y.share(value)), 1)

    bottom = _TOP + _PLOT_HEIGHT
    drawn = [_text(panel.title, left, 56, size=13, weight=600), _text(panel.up, left, 75, colour=_SOFT)]
    for value, text in panel.y.ticks:
        drawn.append(_rule(left, down(value), left + width, down(value), _RULE))
        drawn.append(_text(text, left - 8, down(value) + 4, colour=_SOFT, anchor="end"))
    drawn.append(_rule(left, bottom, left + width, bottom, _SOFT))
    for value, text in panel.x.ticks:
        drawn.append(_rule(across(value), bottom, across(value), bottom + 5, _SOFT))
        drawn.append(_text(text, across(value), bottom + 20, colour=_SOFT, anchor="middle"))
    drawn.append(_text(panel.along, left + width / 2, bottom + 40, colour=_SOFT, anchor="middle"))
    for value, text in panel.marks:
        drawn.append(_rule(across(value), _TOP, across(value), bottom, COLOURS["ink"], dashes="4 3"))
        drawn.append(_text(text, across(value), _TOP - 5, anchor="middle"))
    for curve in panel.curves:
        places = [(across(x), down(y)) for x, y in curve.points]
        upper = [(across(x), down(y)) for x, y in curve.upper]
        drawn.append(_shape(curve, places, upper))
        if curve.text:
            drawn.append(_text(curve.text, places[-1][0], places[-1][1] - 6, colour=_hue(curve), anchor="end"))
    return tag("g", *drawn)


def _shape(curve: Curve, places: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]] = ()) -> Html:
    if curve.look == "dots":
        return tag("g", *(tag("circle", cx=x, cy=y, r=3) for x, y in places), fill=_hue(curve))
    if curve.look == "band":
        return tag("path", d=_path([*places, *reversed(upper)]) + "Z", fill=_hue(curve), fill_opacity=0.16)
    dashes = "6 4" if curve.look == "dashed" else None
    return tag(
        "path",
        d=_path(places),
        fill="none",
        stroke=_hue(curve),
        stroke_width=1.75,
        stroke_dasharray=dashes,
        stroke_linejoin="round",
    )


def _legend(curves: Sequence[Curve], top: float) -> tuple[list[Html], int]:
    """The entries in rows, and how many rows; room is reckoned by letters, for no font is at hand."""
    drawn: list[Html] = []
    x, row = float(_LEFT), 0
    for curve in curves:
        wide = 34 + _LETTER * len(curve.name) + 22
        if x > _LEFT and x + wide > _WIDTH - _RIGHT:
            x, row = float(_LEFT), row + 1
        y = round(top + row * _LINE, 1)
        drawn.append(_swatch(curve, round(x, 1), y - 4))
        drawn.append(_text(curve.name, x + 34, y))
        x += wide
    return drawn, row + 1 if curves else 0


def _swatch(curve: Curve, x: float, y: float) -> Html:
    if curve.look == "dots":
        return _shape(curve, [(x + 3, y), (x + 13, y), (x + 23, y)])
    if curve.look == "band":
        return _shape(curve, [(x, y + 5), (x + 26, y + 5)], [(x, y - 5), (x + 26, y - 5)])
    return _shape(curve, [(x, y), (x + 26, y)])


def _hue(curve: Curve) -> str:
    return COLOURS[curve.colour]


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in places)


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashes: str | None = None) -> Html:
    return tag("line", x1=round(x1, 1), y1=y1, x2=round(x2, 1), y2=y2, stroke=colour, stroke_dasharray=dashes)


def _text(
    text: str,
    x: float,
    y: float,
    *,
    size: int | None = None,
    weight: int | None = None,
    colour: str = COLOURS["ink"],
    anchor: str | None = None,
) -> Html:
    return tag(
        "text", text, x=round(x, 1), y=round(y, 1), fill=colour, font_size=size, font_weight=weight, text_anchor=anchor
    )
