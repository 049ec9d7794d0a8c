"""The geometric median: the point with the smallest sum of distances to all updates (Pillutla et al., 2022, RFA).

It looks at whole vectors, so it stands just under half of the updates being anything and, unlike Krum, still averages
the others. Weiszfeld's iterates are weighted means of the updates, so only the weights are iterated on, with the inner
products of the updates: after one product of matrices a step costs microseconds, and it can run until it has converged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.federated.aggregation.base import Aggregator, Covers
from holdfast.federated.aggregation.coordinates import majority
from holdfast.federated.aggregation.distances import RobustFrame, centred_products, exact_products
from holdfast.federated.aggregation.sums import weighted_sum

_STEPS = 2000
_CONVERGED = 1e-11
_WANTED = 1e-5


def geometric_median(updates: Tensor, smoothing: float = 1e-6) -> Tensor:
    """The smoothed geometric median.

    Args:
        updates: shape (m, parameters).
        smoothing: distances count as at least this fraction of the median distance, so that an iterate on top of an
            update is no division by zero.

    Returns:
        Shape (parameters,), in the dtype of the updates.
    """
    weights, error = _weiszfeld(*centred_products(updates), smoothing, _STEPS // 10)
    # Written so that an error that is no number, which an overflow leaves, goes the exact way.
    if error <= _WANTED:
        return weighted_sum(updates, weights)
    frame = RobustFrame.of(updates)
    if 2 * int((updates == frame.origin).all(1).sum()) >= len(updates):
        # Half of the updates pull to where they are as hard as all others together can pull away.
        return frame.origin.clone()
    weights, _ = _weiszfeld(*exact_products(frame), smoothing, _STEPS)
    return frame.mixture(weights)


def _weiszfeld(products: Tensor, precision: float, smoothing: float, steps: int) -> tuple[Tensor, float]:
    """Weights of the updates, float64 (m,), and how wrong a squared distance may be, relative to itself.

    The error is infinite where so many steps did not suffice.
    """
    squares = products.diagonal()
    lengths = squares.sqrt()
    if lengths.median() == 0:
        # Half of the updates lie at the mean, or so it looks: the quick way can't tell.
        return torch.full_like(lengths, 1 / len(lengths)), torch.inf
    # From far away the iteration takes long: begin with what the distance from the origin says.
    nearest = lengths.clamp(min=float(lengths.median()))
    weights = (1 / nearest) / (1 / nearest).sum()
    for _ in range(steps):
        along = products @ weights
        centre = weights @ along
        distances = (squares - 2 * along + centre).clamp(min=0).sqrt()
        # Relative to the median distance, which no minority chooses; one to the largest would be the attacker's.
        floor = smoothing * distances.median()
        if floor == 0:
            # Half of the updates lie where we are, or so it looks: the quick way can't tell.
            return weights, torch.inf
        closest = distances.clamp(min=float(floor))
        moved = (1 / closest) / (1 / closest).sum()
        change = ((moved - weights).abs() * lengths).sum()
        weights = moved
        if change <= _CONVERGED * distances.median():
            return weights, float((precision * (squares + centre) / closest.square()).max())
    return weights, torch.inf


@dataclass(frozen=True)
class GeometricMedian(Aggregator):
    """The geometric median, by Weiszfeld's iteration run until it has converged.

    Attributes:
        smoothing: distances count as at least this fraction of the median distance.
    """

    name: ClassVar[str] = "geometric-median"

    smoothing: float = 1e-6

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return geometric_median(updates, self.smoothing)

    @property
    def covers(self) -> Covers:
        """Where nobody attacks it is off the mean as well."""
        return "alike"

    def stands(self, m: int) -> int:
        """A minority."""
        return (m - 1) // 2

    def check(self, m: int, f: int) -> list[str]:
        """Half of the updates can place it where they like."""
        super().check(m, f)
        return [majority(self.label, m, f)] if 2 * f >= m else []
