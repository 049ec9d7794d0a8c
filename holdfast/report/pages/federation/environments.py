"""Sections of a federation's page about a second environment: accuracy at home and elsewhere, and along fine-tuning."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.report.html.charts import Axis, Line, chart
from holdfast.report.html.markup import Html, join, number, percent, tag
from holdfast.report.html.page import note, section
from holdfast.report.html.tables import sortable, sortable_row
from holdfast.report.pages.federation.record import SHARED, FederationRecord

_SIZE = 1000
_ACCURACIES = ("accuracy", "accuracy_elsewhere")
_COLUMNS = {
    "accuracy": "At home",
    "elsewhere": "Elsewhere",
    "disparity": "Disparity",
    "worst": "Worst",
    "average": "Average",
}


def environments(record: FederationRecord) -> Html | None:
    """Accuracy in the environment that clients train in and in the other one, by model."""
    by_model: Mapping[str, Mapping[str, float]] = record.results.get("environments") or {}
    if not by_model:
        return None
    best = max(by_model, key=lambda label: by_model[label]["worst"])
    rows = []
    for label, numbers in by_model.items():
        cells = [(percent(numbers[key]), numbers[key]) for key in _COLUMNS]
        rows.append(sortable_row(label, cells, class_="best" if label == best else None))
    table = sortable(
        "Environments",
        "Accuracy by model and environment; the headers sort.",
        ("Model", *_COLUMNS.values()),
        rows,
        rising=None,
        class_="groups",
    )
    lead = note(
        "Every client trains in one of two environments and is tested in both, means over clients. Disparity is what "
        "it loses by leaving home: a shortcut that holds at home only."
    )
    return section("At home and elsewhere", lead, table, id_="environments")


def adaptation(record: FederationRecord) -> Html | None:
    """Accuracy in both environments along fine-tuning, what transfers, and how gradients change."""
    by_method: Mapping[str, Mapping[str, Any]] = record.results.get("adaptation") or {}
    if not by_method:
        return None
    shared = (record.results.get("environments") or {}).get(SHARED, {})
    seen = [value for of in by_method.values() for key in _ACCURACIES for _, value in _points(of["curves"], key)]
    lowest = min([*seen, *(shared[key] for key in ("accuracy", "elsewhere") if key in shared)], default=0.0)
    panels = [_curves(label, of["curves"], shared, lowest) for label, of in by_method.items()]
    transferred = _transfer({label: of["curves"] for label, of in by_method.items()})
    picture = _picture(record, next(iter(by_method.values()))["epsilon"])
    return section(
        "Along fine-tuning",
        tag("div", *panels, transferred, class_="figures equal"),
        tag("div", _ratios(by_method), picture, class_="figures equal"),
        id_="adaptation",
    )


def _curves(
    label: str, curves: Mapping[str, Sequence[float | None]], shared: Mapping[str, float], lowest: float
) -> Html:
    """Accuracy at home and elsewhere at each checkpoint, from the shared model on."""
    lines = []
    for name, key, kind in (("at home", "accuracy", "named-0"), ("away", "accuracy_elsewhere", "worst")):
        start = shared.get("accuracy" if key == "accuracy" else "elsewhere")
        points = [] if start is None else [(0.0, start)]
        points += _points(curves, key)
        if points:
            lines.append(Line(name, tuple(points), kind, percent(points[-1][1])))
    last = max((point[0] for line in lines for point in line.points), default=1.0)
    return chart(
        label,
        f"Accuracy of {label} along fine-tuning; " + ", ".join(f"{line.name} {line.end} at the end" for line in lines),
        lines,
        x=_axis(0.0, last, 4, number),
        y=_axis(math.floor(10 * lowest) / 10, 1.0, 4, lambda value: percent(value, 0)),
        marks=[],
        caption=join(["Mean over clients at each checkpoint; step 0 is the shared model."]),
        along="fine-tuning steps",
    )


def _transfer(by_method: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Html:
    lines: list[Line] = []
    for label, curves in by_method.items():
        points = [(0.0, 1.0), *_points(curves, "transfer")]
        lines.append(Line(label, tuple(points), f"named-{len(lines)}", percent(points[-1][1])))
    last = max(point[0] for line in lines for point in line.points)
    return chart(
        "What still transfers",
        "Adversarial transferability along fine-tuning; " + ", ".join(f"{line.name} {line.end}" for line in lines),
        lines,
        x=_axis(0.0, last, 4, number),
        y=_axis(0.0, 1.0, 4, lambda value: percent(value, 0)),
        marks=[],
        caption=join(["Share of the examples that fool the shared model which fool the personal one too."]),
        along="fine-tuning steps",
    )


def _points(curves: Mapping[str, Sequence[float | None]], key: str) -> list[tuple[float, float]]:
    pairs = zip(curves["step"], curves[key], strict=True)
    return [(float(step), float(value)) for step, value in pairs if step is not None and value is not None]


def _axis(low: float, high: float, steps: int, text: Any) -> Axis:
    high = max(high, low + 1e-9)
    ticks = [low + (high - low) * step / steps for step in range(steps + 1)]
    return Axis(low, high, tuple((value, text(value)) for value in ticks))


def _ratios(by_method: Mapping[str, Mapping[str, Any]]) -> Html:
    """A histogram per method, all on one scale."""
    highest = max(max(of["ratios"]) for of in by_method.values()) or 1
    rows = [_ratio_row(label, of, highest) for label, of in by_method.items()]
    ends = tag("div", tag("span", "1/400"), tag("span", "gradient length, personal over shared"), tag("span", "400"),
               class_="ends")  # fmt: skip
    caption = "Every test example counts once. The line in the middle is no change."
    return tag("figure", tag("h3", "How gradients change"), *rows, ends, tag("figcaption", caption), class_="clients")


def _ratio_row(label: str, measured: Mapping[str, Any], highest: int) -> Html:
    counts: Sequence[int] = measured["ratios"]
    width = _SIZE / len(counts)
    bars = [
        tag(
            "rect",
            x=round((place + 0.06) * width, 1),
            y=round(_SIZE * (1 - count / highest), 1),
            width=round(0.88 * width, 1),
            height=round(_SIZE * count / highest, 1),
            class_="bar",
        )
        for place, count in enumerate(counts)
        if count
    ]
    median = f"median change by a factor of {number(math.exp(measured['instability']), 1)}"
    drawing = tag(
        "svg",
        *bars,
        tag("line", x1=0, x2=_SIZE, y1=_SIZE, y2=_SIZE, class_="grid"),
        tag("line", x1=_SIZE // 2, x2=_SIZE // 2, y1=0, y2=_SIZE, class_="mark chosen"),
        viewBox=f"0 0 {_SIZE} {_SIZE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{label}: {median}",
    )
    return tag("div", tag("p", tag("b", label), median), drawing, class_="histogram tall")


def _picture(record: FederationRecord, epsilon: float) -> Html | None:
    path = record.path / "adversarial.png"
    if not path.is_file():
        return None
    data = base64.b64encode(path.read_bytes()).decode()
    image = tag("img", src=f"data:image/png;base64,{data}", alt="Test images above their adversarial versions",
                class_="pixels")  # fmt: skip
    caption = (
        f"Test images of the first client, and below them what fools the shared model, within {epsilon:.4f} per pixel."
    )
    return tag("figure", tag("h3", "Adversarial examples"), image, tag("figcaption", caption))
