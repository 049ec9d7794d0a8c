"""Rules that look at the norms of updates only: clipping, and dropping the largest (k-norm).

They answer boosted updates, such as model replacement (Ditto, Section 2), and do nothing against attackers that send
updates of ordinary length. The norm is that of the whole update, never of a layer.

Clipping as many updates as the number of attackers allows (`AdaptiveClipping`; Allouah et al., 2025,
https://arxiv.org/abs/2405.14432) leaves the next rule its bound. To the median norm (`Clipping`) half of them are
shortened whoever attacks, and attackers decide to what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import sums
from holdfast.federated.aggregation.base import Aggregator, Covers, Memory, PreStep, RoundFacts
from holdfast.federated.aggregation.coordinates import coordinate_median, majority


def clip_to_median(updates: Tensor) -> Tensor:
    """Updates longer than the median norm are scaled down to it; the others are unchanged.

    Args:
        updates: shape (m, parameters).

    Returns:
        The same shape and dtype.
    """
    lengths = sums.update_norms(updates)
    return _clip(updates, lengths, coordinate_median(lengths[:, None]))


def clip_longest(updates: Tensor, f: int) -> Tensor:
    """The 2f (m - f) / m longest updates, rounded down, are scaled down to the next longest's norm.

    Args:
        updates: shape (m, parameters).
        f: how many of them are expected to be malicious.

    Returns:
        The same shape and dtype.
    """
    m, lengths = len(updates), sums.update_norms(updates)
    return _clip(updates, lengths, lengths.sort().values[m - 1 - 2 * f * (m - f) // m])


def _clip(updates: Tensor, lengths: Tensor, limit: Tensor) -> Tensor:
    """The updates, of these lengths, scaled down to the limit where they are longer."""
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

    def before(self, covers: Covers) -> Covers:
        """The length. Attackers move the median, and so decide how much of honest updates the next rule sees."""
        return "length"

    def stands(self, m: int) -> int:
        """A minority."""
        return (m - 1) // 2

    def check(self, m: int, f: int) -> list[str]:
        """Half of the updates can raise the median norm."""
        super().check(m, f)
        return [majority(self.label, m, f)] if 2 * f >= m else []


@dataclass(frozen=True)
class AdaptiveClipping(PreStep):
    """Clip the longest updates, as many as f says (ARC); a rule with a bound follows, and keeps it.

    A rule with (f, kappa)-robustness has (f, kappa + 2f / (m - 2f)) behind it.
    """

    name: ClassVar[str] = "arc"

    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The clipped updates."""
        return clip_longest(updates, facts.f), memory

    @property
    def needs_f(self) -> bool:
        """Without a number it clips nothing."""
        return True

    def before(self, covers: Covers) -> Covers:
        """As much as before; the mean's length at least, since an honest update sets it."""
        return "length" if covers == "nothing" else covers

    def stands(self, m: int) -> int:
        """A minority."""
        return (m - 1) // 2

    def check(self, m: int, f: int) -> list[str]:
        """Half of the updates leave no honest one to clip to."""
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

    @property
    def covers(self) -> Covers:
        """Attackers who send ordinary lengths stay."""
        return "length"

    def stands(self, m: int) -> int:
        """A minority."""
        return (m - 1) // 2

    def check(self, m: int, f: int) -> list[str]:
        """Something must be left."""
        super().check(m, f)
        if f >= m:
            raise ConfigError(f"k-norm would drop all of {m} updates; expect fewer attackers than clients per round")
        return []
