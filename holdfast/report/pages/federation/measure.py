"""What clients of a federation are scored by, as pages write it: a share in percent, or a number of the task's own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.report.html.charts import Axis
from holdfast.report.html.markup import DASH, percent

_ACCURACY = "accuracy"
#: What falls as models get better; accuracy and a user's own score rise.
_FALLING = ("mean squared error", "loss")
_TICKS = 6


@dataclass(frozen=True)
class Measure:
    """What clients are scored by.

    Attributes:
        name: as the run's results have it.
    """

    name: str = _ACCURACY

    @property
    def is_share(self) -> bool:
        """Whether it goes from 0 to 1, and is written in percent."""
        return self.name == _ACCURACY

    @property
    def falls(self) -> bool:
        """Whether less is better."""
        return self.name in _FALLING

    def goodness(self, value: float) -> float:
        """Something to sort by, from the worst to the best."""
        return -value if self.falls else value

    def text(self, value: float | None) -> str:
        """A value as people read it; a dash where there is none."""
        if value is None or self.is_share:
            return percent(value)
        return f"{value:.4g}" if math.isfinite(value) else DASH

    def axis(self, values: Iterable[float]) -> Axis:
        """From a round number below all values to one above them; of accuracy, up to 100%."""
        known = _finite(values)
        return self._axis(min(known), 1.0 if self.is_share else max(known))

    def spread_axis(self, values: Iterable[float]) -> Axis:
        """From 0 to a round number above all values."""
        return self._axis(0.0, max(*_finite(values), 0.02 if self.is_share else 0.0))

    def near_axis(self, values: Iterable[float]) -> Axis:
        """Around all values, with some room."""
        known = _finite(values)
        if self.is_share:
            return self._axis(max(min(known) - 0.05, 0.0), min(1.0, max(known) + 0.05))
        room = 0.1 * (max(known) - min(known))
        return self._axis(min(known) - room, max(known) + room)

    def _axis(self, low: float, high: float) -> Axis:
        steps = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if self.is_share else _round_steps(high - low or abs(high))
        step = next((step for step in steps if (high - low) / step <= _TICKS), steps[-1])
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        at = [place * step for place in range(first, max(last, first + 1) + 1)]
        digits = 1 if step < 0.01 else 0
        return Axis(
            at[0], at[-1], tuple((tick, percent(tick, digits) if self.is_share else f"{tick:.4g}") for tick in at)
        )


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)] or [0.0]


def _round_steps(span: float) -> tuple[float, ...]:
    """1, 2 and 5 times powers of ten around a tenth of a span, ascending."""
    scale = 10.0 ** math.floor(math.log10(span / 10)) if span > 0 else 1.0
    return tuple(factor * scale for factor in (1, 2, 5, 10, 20))
