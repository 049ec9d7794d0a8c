"""The drawing of Ditto under client-level privacy: accuracy of each kind of model against epsilon."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.papers.ditto.privacy import EPSILONS, ROWS
from holdfast.papers.engine.drawing import COLOURS, drawing
from holdfast.papers.engine.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = {
    "global": ("ink", "o-"),
    "ditto-0.1": ("teal", "s--"),
    "ditto-1": ("teal", "o-"),
    "finetuning": ("orange", "o-"),
    "local": ("grey", ":"),
}


def draw(results: Results) -> str:
    """Over all test data, and for the worst tenth of clients."""
    return drawing(
        "What noise that hides clients costs the shared model, and what personal models",
        "Accuracy of the shared model, of Ditto, of fine-tuning and of training alone, from no noise to epsilon 1: "
        "the shared model loses most.",
        {
            "Over the test data of all clients": partial(_against_epsilon, results, "pooled"),
            "Mean of the worst tenth of clients": partial(_against_epsilon, results, "worst_tenth"),
        },
        ["Fashion-MNIST over 500 clients. Means over the seeds; bands reach from the lowest seed to the highest."],
    )


def _against_epsilon(results: Results, metric: str, axes: Axes) -> None:
    places = range(len(EPSILONS))
    for row, (colour, line) in _STYLES.items():
        values = [results.values(f"{column}/plain", f"{row}/{metric}") for column in EPSILONS]
        means = [sum(each) / len(each) for each in values]
        low, high = [min(each) for each in values], [max(each) for each in values]
        axes.fill_between(places, low, high, color=COLOURS[colour], alpha=0.15, linewidth=0)
        axes.plot(places, means, line, color=COLOURS[colour], label=ROWS[row])
    axes.set_xticks(places, ["no noise" if epsilon is None else f"{epsilon:g}" for epsilon in EPSILONS.values()])
    axes.set(xlabel="epsilon of the whole run", ylabel="accuracy")
