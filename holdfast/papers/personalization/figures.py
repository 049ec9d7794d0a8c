"""Figures of Personalized FL with spurious features, drawn from results."""

from __future__ import annotations

import itertools

from holdfast.papers.engine.results import Results
from holdfast.report.html.charts import Axis
from holdfast.report.html.drawing import Curve, Panel, drawing

_METHODS = {"ft": "Fine-tuning", "flipped": "Flipped labels", "ours": "Ours, tuned"}


def draw_1(results: Results) -> str:
    """Figures 1 and 3: accuracy at home and elsewhere at each checkpoint, and what transfers."""
    panels = [_along(results, row, title) for row, title in _METHODS.items()]
    return drawing(
        "Fine-tuning gains at home and loses elsewhere, as transferability falls",
        "Accuracy at home and elsewhere and adversarial transferability along fine-tuning, for fine-tuning, flipped "
        "labels and the method, which keeps the two environments together.",
        panels,
        ["Means over ten clients and the seeds. Epoch 0 is the shared model."],
    )


def _along(results: Results, row: str, title: str) -> Panel:
    cell = results.names[0]
    metrics = next(found.metrics for found in results.cells if found.name == cell)
    epochs = list(itertools.takewhile(lambda epoch: f"{row}/at{epoch}_accuracy" in metrics, itertools.count(1)))

    def path(metric: str, start: float) -> tuple[tuple[float, float], ...]:
        return ((0.0, start), *((float(epoch), results.mean(cell, f"{row}/at{epoch}_{metric}")) for epoch in epochs))

    home, away = (results.mean(cell, f"global/{metric}") for metric in ("accuracy", "elsewhere"))
    return Panel(
        title,
        (
            Curve("transferability", path("transfer", 1.0), "grey", "dashed"),
            Curve("accuracy at home", path("accuracy", home), "teal"),
            Curve("accuracy elsewhere", path("elsewhere", away), "orange"),
        ),
        x=Axis(0.0, float(epochs[-1]), tuple((float(epoch), str(epoch)) for epoch in (0, *epochs))),
        y=Axis(0.0, 1.0, tuple((tick / 5, f"{tick / 5:.1f}") for tick in range(6))),
        along="epochs of fine-tuning",
        up="share",
    )


def draw_8(results: Results) -> str:
    """Figure 8: the spurious weight that personal models end with."""
    return drawing(
        "What personal models pick up in a Gaussian environment",
        "The spurious weight of personal models for several coefficients: it falls as either term grows.",
        [
            _ends(results, "Predictions only", [f"{value:g}-0" for value in (0, 0.1, 1, 10)]),
            _ends(results, "Weights only", [f"0-{value:g}" for value in (0, 0.01, 0.1, 1)]),
            _ends(results, "Both", ["0-0", "1-0.1", "10-0.1", "1-1"]),
        ],
        ["Mean over 20 clients of each sign; the band is its deviation over the last 40 steps."],
    )


def _ends(results: Results, title: str, names: list[str]) -> Panel:
    ends = [results.mean(f"personal/{name}", "spurious") for name in names]
    wobbles = [results.mean(f"personal/{name}", "wobble") for name in names]
    places = [float(place) for place in range(len(names))]
    low = tuple((x, max(end - wobble, 0.0)) for x, end, wobble in zip(places, ends, wobbles, strict=True))
    high = tuple((x, end + wobble) for x, end, wobble in zip(places, ends, wobbles, strict=True))
    return Panel(
        title,
        (
            Curve("deviation over steps", low, "teal", "band", upper=high),
            Curve("|w_s|", tuple(zip(places, ends, strict=True)), "ink"),
            Curve("", tuple(zip(places, ends, strict=True)), "teal", "dots"),
        ),
        x=Axis(0.0, places[-1], tuple((x, name.replace("-", ", ", 1)) for x, name in zip(places, names, strict=True))),
        y=Axis(0.0, 1.6, tuple((tick / 5, f"{tick / 5:.1f}") for tick in range(9))),
        along="coefficients of predictions, weights",
        up="spurious weight",
    )
