"""Pre-aggregators for unlike clients: mix updates first, so that honest ones become alike, and then aggregate robustly.

Where clients' data differ, robust rules take rare honest updates for attacks. Nearest-neighbour mixing (Allouah et al.,
2023, https://arxiv.org/abs/2302.01772) replaces every update by the mean of its m - f nearest, itself included.
Bucketing (Karimireddy et al., 2022, https://arxiv.org/abs/2006.09365) averages random groups of a few updates: spread
falls, and so does the number of updates, while attackers stay as many.

Both are steps before a rule with a bound of its own, as in ``nnm+trimmed-mean``. The mean behind them has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation.base import Covers, Memory, PreStep, RoundFacts
from holdfast.federated.aggregation.distances import RobustFrame, centred_products, distances_of, exact_products
from holdfast.federated.aggregation.sums import mean_of, mixtures
from holdfast.streams import torch_stream


def nearest_neighbour_mixing(updates: Tensor, f: int) -> Tensor:
    """Every update replaced by the mean of the m - f that are nearest to it, itself included.

    Args:
        updates: shape (m, parameters).
        f: how many of them are expected to be malicious, fewer than m.

    Returns:
        The same shape and dtype.
    """
    m = len(updates)
    distances, errors = distances_of(*centred_products(updates))
    chosen = _nearest(distances, m - f)
    if f:
        nearer, farther = (distances + errors)[chosen].view(m, -1), (distances - errors)[~chosen].view(m, f)
        # An update is nearest to itself. Written so that a comparison with no number goes the exact way.
        inside = nearer.where(nearer < torch.inf, 0.0).amax(1)
        if not bool((inside < farther.amin(1)).all()):
            chosen = _nearest(distances_of(*exact_products(RobustFrame.of(updates, f)))[0], m - f)
    return mixtures(updates, chosen.double() / (m - f))


def _nearest(distances: Tensor, count: int) -> Tensor:
    """Who is among the `count` nearest of each, itself included, bool of shape (m, m); of equals the earlier row."""
    order = distances.clone().fill_diagonal_(-1).argsort(dim=1, stable=True)
    chosen = torch.zeros_like(distances, dtype=torch.bool)
    return chosen.scatter_(1, order[:, :count], True)


def buckets(updates: Tensor, order: Tensor, size: int) -> Tensor:
    """The means of the updates in groups of `size`, the last one smaller where they don't come out even.

    Args:
        updates: shape (m, parameters).
        order: a permutation of the m, which says who shares a group.
        size: of a group.

    Returns:
        Shape (ceil(m / size), parameters), in the dtype of the updates.
    """
    whole = len(updates) // size
    if updates.dtype in (torch.float16, torch.bfloat16):
        return buckets(updates.float(), order, size).to(updates.dtype)
    largest = torch.finfo(updates.dtype).max
    means = torch.empty(-(-len(updates) // size), updates.shape[1], dtype=updates.dtype, device=updates.device)
    full = torch.index_select(updates, 0, order[0 : whole * size : size]).div_(size)
    for place in range(1, size if whole else 1):
        # Every part is divided before it is added: a sum of the largest numbers has no number.
        full.add_(torch.index_select(updates, 0, order[place : whole * size : size]), alpha=1 / size)
    means[:whole] = full.clamp_(-largest, largest)
    if len(means) > whole:
        means[whole] = mean_of(updates, order[whole * size :])
    return means


@dataclass(frozen=True)
class NearestNeighbourMixing(PreStep):
    """Replace every update by the mean of its m - f nearest; a rule with a bound follows."""

    name: ClassVar[str] = "nnm"

    def before(self, covers: Covers) -> Covers:
        """A rule with a bound for alike updates has one for unlike ones behind it."""
        return "unlike" if covers == "alike" else covers

    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The mixed updates."""
        return nearest_neighbour_mixing(updates, facts.f), memory

    @property
    def needs_f(self) -> bool:
        """It says how many are near."""
        return True

    def check(self, m: int, f: int) -> list[str]:
        """An update must at least have itself."""
        super().check(m, f)
        if f >= m:
            raise ConfigError(f"nnm mixes every update with m - f = {m - f} nearest; expect fewer attackers")
        return []


@dataclass(frozen=True)
class Bucketing(PreStep):
    """Average random groups of a few updates; a rule with a bound follows.

    Attributes:
        size: updates in a group.
    """

    name: ClassVar[str] = "bucketing"

    size: int = 2

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"bucketing's size is {self.size}; give at least 1")

    def before(self, covers: Covers) -> Covers:
        """The same where buckets are as large as attackers leave room for (Karimireddy et al., 2022, Theorem I)."""
        return "unlike" if covers == "alike" else covers

    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The means of groups that are drawn anew in every round."""
        order = torch.randperm(len(updates), generator=torch_stream(facts.seed, "buckets", facts.number))
        return buckets(updates, order, self.size), memory

    def remaining(self, m: int) -> int:
        """One per group."""
        return -(-m // self.size)
