"""Krum and multi-Krum: keep the updates that have the closest company (Blanchard et al., 2017).

The score of an update is the sum of squared distances to its m - f - 2 nearest others. Krum keeps the lowest,
multi-Krum the m - f lowest. Both trust that honest updates resemble each other, so they are weak where clients differ.

Distances are taken between updates, never between models: next to a model of norm 21, float32 can't tell apart updates
of norm 0.003. They are computed the quick way first, with a bound on the error; only where the bound leaves the choice
open are they computed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation.base import Aggregator, Covers
from holdfast.federated.aggregation.distances import (
    RobustFrame,
    centred_products,
    distances_of,
    exact_products,
)
from holdfast.federated.aggregation.sums import mean_of


def krum_scores(distances: Tensor, neighbours: int) -> Tensor:
    """Sum of squared distances to the nearest others, float64 of shape (m,).

    Args:
        distances: shape (m, m), infinite on the diagonal.
        neighbours: how many others count.
    """
    return distances.topk(neighbours, 1, largest=False, sorted=False).values.sum(1)


def krum_select(updates: Tensor, neighbours: int, keep: int) -> Tensor:
    """The positions of the updates with the lowest scores, lowest first.

    Args:
        updates: shape (m, parameters).
        neighbours: how many others count in a score.
        keep: how many updates to keep.

    Returns:
        int64 of shape (keep,); of equal scores the earlier row is first.
    """
    distances, errors = distances_of(*centred_products(updates))
    order = krum_scores(distances, neighbours).argsort(stable=True)
    if keep < len(updates):
        highest = krum_scores(distances + errors, neighbours)[order[:keep]].max()
        lowest = krum_scores(distances - errors, neighbours)[order[keep:]].min()
        # Written so that a comparison with no number, which an overflow leaves, goes the exact way.
        if not highest < lowest:
            distances, _ = distances_of(*exact_products(RobustFrame.of(updates, max(len(updates) - neighbours - 2, 0))))
            order = krum_scores(distances, neighbours).argsort(stable=True)
    return order[:keep]


@dataclass(frozen=True)
class Krum(Aggregator):
    """The single update with the lowest Krum score.

    Attributes:
        reference: count m - f - 2 neighbours even if that is none, as the authors' program does: then the first update
            wins. Otherwise at least one neighbour counts.
    """

    name: ClassVar[str] = "krum"

    reference: bool = False

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        chosen = krum_select(updates, self.neighbours(len(updates), f), 1)
        return updates[chosen[0]].clone()

    def neighbours(self, m: int, f: int) -> int:
        """How many others count in a score."""
        return min(max(m - f - 2, 0 if self.reference else 1), m - 1)

    @property
    def needs_f(self) -> bool:
        """It decides how many neighbours count, and how many updates multi-Krum drops."""
        return True

    @property
    def covers(self) -> Covers:
        """It is, or averages, the updates of those that have the closest company."""
        return "alike"

    def stands(self, m: int) -> int:
        """As many as leave 2f + 2 below m (Blanchard et al., 2017, Proposition 4.2)."""
        return max((m - 3) // 2, 0)

    def check(self, m: int, f: int) -> list[str]:
        """Degenerate where fewer than one neighbour is left; no guarantee where 2f + 2 >= m."""
        super().check(m, f)
        if m - f - 2 < 1:
            what = "no neighbour counts and the first update wins" if self.reference else "one neighbour counts"
            return [f"{self.label} has m - f - 2 = {m - f - 2} neighbours for {m} updates and {f} attackers, so {what}"]
        if 2 * f + 2 >= m and f > 0:
            return [f"{self.label} promises something where 2f + 2 < m; here {f} of {m} are expected to be malicious"]
        return []


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the updates with the lowest Krum scores.

    Attributes:
        keep: how many to keep; by default m - f.
    """

    name: ClassVar[str] = "multi-krum"

    keep: int | None = None

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        m = len(updates)
        keep = min(m - f if self.keep is None else self.keep, m)
        return mean_of(updates, krum_select(updates, self.neighbours(m, f), keep))

    def stands(self, m: int) -> int:
        """Krum's, and what is kept must have room for honest updates only."""
        return super().stands(m) if self.keep is None else max(min(super().stands(m), m - self.keep), 0)

    def check(self, m: int, f: int) -> list[str]:
        """Besides Krum's, at least one update must be kept."""
        sentences = super().check(m, f)
        if (m - f if self.keep is None else self.keep) < 1:
            raise ConfigError(f"{self.label} would keep none of {m} updates with {f} attackers; expect fewer attackers")
        return sentences
