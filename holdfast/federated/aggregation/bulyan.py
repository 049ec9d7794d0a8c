"""Bulyan: Krum again and again, then a trimmed mean around the median (El Mhamdi et al., 2018).

One coordinate of an update that Krum selects may be far off, hidden in a distance over many coordinates. Bulyan selects
m - 2f updates one after another, and averages in every coordinate the values that are nearest to their median, all but
2f of them (https://arxiv.org/abs/1802.07927). The price is the number of attackers that it stands: 4f + 3 <= m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation.base import Aggregator, Covers
from holdfast.federated.aggregation.coordinates import by_columns, row_means
from holdfast.federated.aggregation.distances import RobustFrame, distances_of, exact_products
from holdfast.federated.aggregation.krum import krum_scores


def bulyan_select(updates: Tensor, f: int) -> Tensor:
    """The positions of m - 2f updates, each the Krum of those that were left, in the order in which they are found.

    Args:
        updates: shape (m, parameters).
        f: how many of them are expected to be malicious.
    """
    distances, _ = distances_of(*exact_products(RobustFrame.of(updates, f)))
    left = torch.arange(len(updates), device=updates.device)
    chosen = []
    for _ in range(len(updates) - 2 * f):
        neighbours = min(max(len(left) - f - 2, 1), len(left) - 1)
        best = int(krum_scores(distances[left][:, left], neighbours).argmin()) if neighbours else 0
        chosen.append(left[best])
        left = torch.cat([left[:best], left[best + 1 :]])
    return torch.stack(chosen)


def bulyan_mean(updates: Tensor, f: int) -> Tensor:
    """The mean of each coordinate over the m - 4f selected values that are nearest to their median.

    Args:
        updates: shape (m, parameters).
        f: how many of them are expected to be malicious; 4f < m.

    Returns:
        Shape (parameters,), in the dtype of the updates.

    Raises:
        ConfigError: if nothing would be left.
    """
    if 4 * f >= len(updates):
        raise ConfigError(f"bulyan of {len(updates)} updates can't drop 4 x {f}; expect fewer attackers")
    chosen = bulyan_select(updates, f).sort().values
    keep = len(updates) - 4 * f
    return by_columns(updates[chosen], lambda ordered: row_means(_nearest_to_median(ordered, keep)))


def _nearest_to_median(ordered: NDArray[np.floating], keep: int) -> NDArray[np.floating]:
    """Of each sorted row the `keep` values that are nearest to its median, shape (rows, keep).

    They stand side by side: of all windows of that width it is the one whose far end is nearest.
    """
    count = ordered.shape[1]
    # In halves: the difference of the largest numbers has no number.
    halves = ordered / 2
    middle = (halves[:, (count - 1) // 2] / 2 + halves[:, count // 2] / 2)[:, None]
    away = np.maximum(middle - halves[:, : count - keep + 1], halves[:, keep - 1 :] - middle)
    first = away.argmin(axis=1)
    nearest: NDArray[np.floating] = np.take_along_axis(ordered, first[:, None] + np.arange(keep), axis=1)
    return nearest


@dataclass(frozen=True)
class Bulyan(Aggregator):
    """Updates selected by Krum one after another, and of them the mean of each coordinate's middle values."""

    name: ClassVar[str] = "bulyan"

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return bulyan_mean(updates, f)

    @property
    def needs_f(self) -> bool:
        """Without a number it is the mean."""
        return True

    @property
    def covers(self) -> Covers:
        """It begins with Krum."""
        return "alike"

    def stands(self, m: int) -> int:
        """As many as leave 4f + 3 within m (El Mhamdi et al., 2018)."""
        return max((m - 3) // 4, 0)

    def check(self, m: int, f: int) -> list[str]:
        """Not defined where nothing is left; no guarantee where 4f + 3 > m."""
        super().check(m, f)
        if 4 * f >= m:
            raise ConfigError(f"bulyan needs more than 4f = {4 * f} updates and there are {m}; expect fewer attackers")
        if f > self.stands(m):
            return [f"bulyan promises something where 4f + 3 <= m; here {f} of {m} are expected to be malicious"]
        return []
