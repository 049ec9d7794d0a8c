"""The trade-off of EPIC, drawn from results: what more medoids stop, what they cost, and what they drop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.papers.engine.drawing import COLOURS, drawing
from holdfast.papers.engine.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_POOLS = {"medoids of all": ("", COLOURS["teal"]), "of what remains": (", remaining", COLOURS["orange"])}


def draw_trade_off(results: Results) -> str:
    """Success, accuracy lost and shares dropped along the fraction of medoids; 0 is no defence."""
    column = results.names[0].partition("/")[0]
    plain = f"{column}/none"
    metrics = {cell.name: cell.metrics for cell in results.cells}

    def path(pool: str, metric: str) -> tuple[list[float], list[float]]:
        """The fractions of which `metric` is known, and its means."""
        rows = {f: f"{column}/epic-{f}{_POOLS[pool][0]}" if f else plain for f in _FRACTIONS}
        known = [f for f, row in rows.items() if metric in metrics.get(row, {})]
        return known, [results.mean(rows[f], metric) for f in known]

    def fooled(axes: Axes) -> None:
        known, low = path("medoids of all", "from")
        high = path("medoids of all", "to")[1]
        axes.fill_between(known, low, high, color=COLOURS["teal"], alpha=0.16, linewidth=0, label="95 % interval")
        for pool, (_, colour) in _POOLS.items():
            axes.plot(*path(pool, "fooled"), color=colour, label=pool)
        _scales(axes, range(0, 101, 20), "%")

    def lost(axes: Axes) -> None:
        for pool, (_, colour) in _POOLS.items():
            known, accuracies = path(pool, "accuracy")
            axes.plot(known, [results.mean(plain, "accuracy") - value for value in accuracies], color=colour)
        _scales(axes, range(5), "points")

    def dropped(axes: Axes) -> None:
        for metric, style in {"poisons dropped": "-", "dropped": "--"}.items():
            for pool, (_, colour) in _POOLS.items():
                known, shares = path(pool, metric)
                axes.plot([0.0, *known], [0.0, *(100 * share for share in shares)], style, color=colour)
        _scales(axes, range(0, 101, 20), "%")

    return drawing(
        "More medoids stop more poisons and cost a little accuracy",
        "Success of the attack, accuracy lost, and shares of poisons and of all examples dropped, for fractions of "
        "medoids from none to a half.",
        {"Targets fooled": fooled, "Accuracy lost": lost, "Dropped poisons, all (dashed)": dropped},
        [f"{len(results.seeds)} trials; only targets count that are seen rightly without poisons."],
    )


def _scales(axes: Axes, ticks: Sequence[int], unit: str) -> None:
    axes.set(xlim=(0, 0.5), ylim=(ticks[0], ticks[-1]), yticks=ticks, xlabel="fraction of medoids", ylabel=unit)
