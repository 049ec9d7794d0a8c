"""Figures of Personalized FL with spurious features, drawn from results."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from holdfast.papers.engine.drawing import COLOURS, drawing
from holdfast.papers.engine.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METHODS = {"ft": "Fine-tuning", "flipped": "Flipped labels", "ours": "Ours, tuned"}


def draw_1(results: Results) -> str:
    """Figures 1 and 3: accuracy at home and elsewhere at each checkpoint, and what transfers."""
    return drawing(
        "Fine-tuning gains at home and loses elsewhere, as transferability falls",
        "Accuracy at home and elsewhere and adversarial transferability along fine-tuning, for fine-tuning, flipped "
        "labels and the method, which keeps the two environments together.",
        {title: partial(_along, results, row) for row, title in _METHODS.items()},
        ["Means over ten clients and the seeds. Epoch 0 is the shared model."],
    )


def _along(results: Results, row: str, axes: Axes) -> None:
    cell = results.names[0]
    metrics = next(found.metrics for found in results.cells if found.name == cell)
    epochs = list(itertools.takewhile(lambda epoch: f"{row}/at{epoch}_accuracy" in metrics, itertools.count(1)))

    def path(metric: str, start: float) -> tuple[list[int], list[float]]:
        return [0, *epochs], [start, *(results.mean(cell, f"{row}/at{epoch}_{metric}") for epoch in epochs)]

    home, away = (results.mean(cell, f"global/{metric}") for metric in ("accuracy", "elsewhere"))
    axes.plot(*path("transfer", 1.0), "--", color=COLOURS["grey"], label="transferability")
    axes.plot(*path("accuracy", home), color=COLOURS["teal"], label="accuracy at home")
    axes.plot(*path("elsewhere", away), color=COLOURS["orange"], label="accuracy elsewhere")
    axes.set(xlim=(0, epochs[-1]), xticks=[0, *epochs], ylim=(0, 1), xlabel="epochs of fine-tuning", ylabel="share")


def draw_8(results: Results) -> str:
    """Figure 8: the spurious weight that personal models end with."""
    panels = {
        "Predictions only": [f"{value:g}-0" for value in (0, 0.1, 1, 10)],
        "Weights only": [f"0-{value:g}" for value in (0, 0.01, 0.1, 1)],
        "Both": ["0-0", "1-0.1", "10-0.1", "1-1"],
    }
    return drawing(
        "What personal models pick up in a Gaussian environment",
        "The spurious weight of personal models for several coefficients: it falls as either term grows.",
        {title: partial(_ends, results, names) for title, names in panels.items()},
        ["Mean over 20 clients of each sign; the band is its deviation over the last 40 steps."],
    )


def _ends(results: Results, names: list[str], axes: Axes) -> None:
    ends = [results.mean(f"personal/{name}", "spurious") for name in names]
    wobbles = [results.mean(f"personal/{name}", "wobble") for name in names]
    places = range(len(names))
    low = [max(end - wobble, 0.0) for end, wobble in zip(ends, wobbles, strict=True)]
    high = [end + wobble for end, wobble in zip(ends, wobbles, strict=True)]
    axes.fill_between(places, low, high, color=COLOURS["teal"], alpha=0.16, linewidth=0, label="deviation over steps")
    axes.plot(places, ends, "o-", color=COLOURS["ink"], markerfacecolor=COLOURS["teal"], label="|w_s|", clip_on=False)
    axes.set_xticks(places, [name.replace("-", ", ", 1) for name in names])
    axes.set(ylim=(0, 1.6), xlabel="coefficients of predictions, weights", ylabel="spurious weight")
