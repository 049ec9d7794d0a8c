"""The trade-off of EPIC, drawn from results: what more medoids stop, what they cost, and what they drop."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.papers.engine.results import Results
from holdfast.report.html.charts import Axis
from holdfast.report.html.drawing import Curve, Panel, drawing

Points = tuple[tuple[float, float], ...]

_FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_POOLS = {"medoids of all": ("", "teal"), "of what remains": (", remaining", "orange")}


def draw_trade_off(results: Results) -> str:
    """Success, accuracy lost and shares dropped along the fraction of medoids; 0 is no defence."""
    column = results.names[0].partition("/")[0]
    plain = f"{column}/none"

    def row(fraction: float, pool: str) -> str:
        return f"{column}/epic-{fraction}{_POOLS[pool][0]}" if fraction else plain

    metrics = {cell.name: cell.metrics for cell in results.cells}

    def path(pool: str, metric: str) -> Points:
        known = [f for f in _FRACTIONS if metric in metrics.get(row(f, pool), {})]
        return tuple((f, results.mean(row(f, pool), metric)) for f in known)

    def lost(pool: str) -> Points:
        return tuple((f, results.mean(plain, "accuracy") - value) for f, value in path(pool, "accuracy"))

    def dropped(pool: str, metric: str) -> Points:
        return ((0.0, 0.0), *((f, 100 * share) for f, share in path(pool, metric)))

    interval = Curve(
        "95 % interval", path("medoids of all", "from"), "teal", "band", upper=path("medoids of all", "to")
    )
    share = Axis(0.0, 100.0, tuple((float(tick), str(tick)) for tick in range(0, 101, 20)))
    return drawing(
        "More medoids stop more poisons and cost a little accuracy",
        "Success of the attack, accuracy lost, and shares of poisons and of all examples dropped, for fractions of "
        "medoids from none to a half.",
        [
            _panel("Targets fooled", [interval, *_curves({pool: path(pool, "fooled") for pool in _POOLS})], share, "%"),
            _panel("Accuracy lost", _curves({pool: lost(pool) for pool in _POOLS}), _points(), "points"),
            _panel(
                "Poisons dropped (solid), all (dashed)",
                [
                    *_curves({pool: dropped(pool, "poisons dropped") for pool in _POOLS}),
                    *_curves({pool: dropped(pool, "dropped") for pool in _POOLS}, "dashed", named=False),
                ],
                share,
                "%",
            ),
        ],
        [f"{len(results.seeds)} trials; only targets count that are seen rightly without poisons."],
    )


def _curves(paths: dict[str, Points], look: str = "line", *, named: bool = True) -> list[Curve]:
    return [Curve(pool if named else "", path, _POOLS[pool][1], look) for pool, path in paths.items()]


def _points() -> Axis:
    return Axis(0.0, 4.0, tuple((float(tick), str(tick)) for tick in range(5)))


def _panel(title: str, curves: Sequence[Curve], y: Axis, up: str) -> Panel:
    x = Axis(0.0, 0.5, tuple((tick / 10, f"{tick / 10:g}") for tick in range(6)))
    return Panel(title, tuple(curves), x=x, y=y, along="fraction of medoids", up=up)
