"""Attacks that know what the benign clients of the round send; all malicious clients send the same vector.

Where a round has no benign client, they go by their own updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.federated.aggregation import mean, squared_distances
from holdfast.federated.aggregation.distances import centred_products
from holdfast.federated.attacks.base import Attack


def alie_z(m: int, f: int) -> float:
    """How many standard deviations ALIE can move (Baruch et al., Algorithm 3).

    A majority needs floor(m / 2 + 1) - f benign clients that are farther out than the attackers. Few attackers or small
    rounds would give a negative number, which is no attack in their direction: then it is zero. Attackers that are a
    majority themselves still count on one.

    Args:
        m: clients of the round.
        f: malicious ones among them.
    """
    benign = m - f
    supporters = max(m // 2 + 1 - f, 1)
    if benign <= 2 * supporters:
        return 0.0
    return NormalDist().inv_cdf((benign - supporters) / benign)


@dataclass(frozen=True)
class LittleIsEnough(Attack):
    """ALIE: the benign mean, moved by as many standard deviations as go unnoticed (Baruch et al., 2019).

    Attributes:
        z: how many; by default the largest for which enough benign clients are farther out, see `alie_z`.
    """

    name: ClassVar[str] = "alie"

    z: float | None = None

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """One vector for all."""
        known = known_updates(updates, malicious)
        z = alie_z(len(updates), int(malicious.sum())) if self.z is None else self.z
        return mean(known) + z * spread(known)


@dataclass(frozen=True)
class InnerProduct(Attack):
    """Inner-product manipulation: the benign mean, reversed, to turn the average around (Xie et al., 2020).

    Attributes:
        epsilon: length relative to the benign mean; small values hide, the mean is reversed from benign / malicious on.
    """

    name: ClassVar[str] = "inner-product"

    epsilon: float = 0.5

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """One vector for all."""
        return -self.epsilon * mean(known_updates(updates, malicious))


@dataclass(frozen=True)
class MinMax(Attack):
    """As far from the benign mean as benign updates are from each other (Shejwalkar and Houmansadr, 2021).

    The published search for the factor is not needed: the farthest point on the ray is the root of a quadratic for
    each benign update.

    Attributes:
        direction: along the reversed mean of unit length, its reversed signs, or the reversed standard deviations.
    """

    name: ClassVar[str] = "min-max"

    direction: Literal["unit", "sign", "std"] = "unit"

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """One vector for all."""
        known = known_updates(updates, malicious).double()
        centre = mean(known)
        away = -spread(known) if self.direction == "std" else -centre.sign()
        if self.direction == "unit":
            away = -centre / centre.norm().clamp(min=torch.finfo(torch.float64).tiny)
        return (centre + _farthest(known, centre, away) * away).to(updates.dtype)


@dataclass(frozen=True)
class Mimic(Attack):
    """All send what one benign client sends, so that it counts too much (Karimireddy et al., 2022).

    No rule can tell: nothing that is sent is unusual. Where clients differ, the others' data is lost.

    Attributes:
        position: of that client among the benign of the round; by default the one farthest out in the direction in
            which benign updates differ most.
    """

    name: ClassVar[str] = "mimic"

    position: int | None = None

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """One vector for all."""
        known = known_updates(updates, malicious)
        chosen = _farthest_out(known) if self.position is None else min(self.position, len(known) - 1)
        return known[chosen]


def _farthest_out(known: Tensor) -> int:
    """The row with the largest projection on the first principal direction, from the products of the centred rows."""
    products, _ = centred_products(known.double())
    _, directions = torch.linalg.eigh(products)
    return int(directions[:, -1].abs().argmax())


def known_updates(updates: Tensor, malicious: Tensor) -> Tensor:
    """What an attacker knows: the benign updates, or those of all where there is no benign client."""
    return updates if bool(malicious.all()) else updates[~malicious]


def spread(updates: Tensor) -> Tensor:
    """Standard deviation of each coordinate over clients, shape (parameters,)."""
    if len(updates) == 1:
        return torch.zeros_like(updates[0])
    return updates.double().std(0).to(updates.dtype)


def _farthest(known: Tensor, centre: Tensor, away: Tensor) -> float:
    """The largest factor by which `centre` can go `away` and be no farther from any row than two rows are apart."""
    squared = float(away @ away)
    if squared == 0:
        return 0.0
    apart = squared_distances(known)
    offsets = centre - known
    half = offsets @ away
    rest = offsets.square().sum(1) - apart.fill_diagonal_(0).max()
    factors = (-half + (half.square() - squared * rest).clamp(min=0).sqrt()) / squared
    return float(factors.min())
