"""Rules that look at the norms of updates only: clipping to the median norm, and dropping the largest (k-norm).

They answer boosted updates, such as model replacement (Ditto, Section 2), and do nothing against attackers that send
updates of ordinary length. The norm is that of the whole update, never of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import sums
from holdfast.federated.aggregation.base import Aggregator, Memory, PreStep, RoundFacts
from holdfast.federated.aggregation.coordinates import coordinate_median, majority


def clip_to_median(updates: Tensor) -> Tensor:
    """Updates longer than the median norm are scaled down to it; the others are unchanged.

    Args:
        updates: shape (m, parameters).

    Returns:
        The same shape and dtype.
    """
    lengths = sums.update_norms(updates)
    limit = coordinate_median(lengths[:, None])
    scales = (limit / lengths).where(lengths > limit, 1.0)
    if updates.dtype in (torch.float32, torch.float64) and float(scales.min()) >= torch.finfo(updates.dtype).tiny:
        return updates * scales.to(updates.dtype)[:, None]
    clipped = updates.clone()
    # In float64: the scale of an update of 1e38 is no number of float32 that could be multiplied with.
    longer = (lengths > limit).nonzero().flatten()
    clipped[longer] = (updates[longer].double() * (limit / lengths[longer])[:, None]).to(updates.dtype)
    return clipped


@dataclass(frozen=True)
class Clipping(PreStep):
    """Clip every update to the median norm; the mean or another rule follows."""

    name: ClassVar[str] = "clipping"

    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The clipped updates."""
        return clip_to_median(updates), memory

    def stands(self, m: int) -> int:
        """A minority."""
        return (m - 1) // 2

    def check(self, m: int, f: int) -> list[str]:
        """Half of the updates can raise the median norm."""
        super().check(m, f)
        return [majority(self.label, m, f)] if 2 * f >= m else []


@dataclass(frozen=True)
class KNorm(Aggregator):
    """The mean without the `f` updates of largest norm."""

    name: ClassVar[str] = "k-norm"

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return sums.mean_of(updates, sums.update_norms(updates).argsort(stable=True)[: len(updates) - f])

    @property
    def needs_f(self) -> bool:
        """Without a number it is the mean."""
        return True

    def stands(self, m: int) -> int:
        """A minority."""
        return (m - 1) // 2

    def check(self, m: int, f: int) -> list[str]:
        """Something must be left."""
        super().check(m, f)
        if f >= m:
            raise ConfigError(f"k-norm would drop all of {m} updates; expect fewer attackers than clients per round")
        return []
