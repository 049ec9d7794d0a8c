"""Attacks by clients that know nothing but their own update: Ditto's A1, A2 and A3, reversed signs, plain noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.federated.attacks.base import Attack
from holdfast.streams import torch_stream


@dataclass(frozen=True)
class LabelPoisoning(Attack):
    """A1: train on poisoned labels and otherwise follow the protocol."""

    name: ClassVar[str] = "a1"
    poisons_labels: ClassVar[bool] = True

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """Their updates as they are."""
        return updates[malicious]


@dataclass(frozen=True)
class RandomUpdates(Attack):
    """A2: noise in every coordinate, as large as the own update's coordinates, fresh in each round."""

    name: ClassVar[str] = "a2"
    poisons_labels: ClassVar[bool] = True

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """Normal noise of mean zero and the standard deviation of the own update's coordinates."""
        own = updates[malicious]
        spreads = [float(row.double().std(correction=0)) for row in own]
        return _noise(own, clients[malicious], seed, number) * own.new_tensor(spreads)[:, None]


@dataclass(frozen=True)
class ModelReplacement(Attack):
    """A3: the own update, boosted so that it survives the average.

    Attributes:
        boost: the factor; by default the number of clients in the round.
    """

    name: ClassVar[str] = "a3"
    poisons_labels: ClassVar[bool] = True

    boost: float | None = None

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """Their updates, multiplied."""
        return updates[malicious] * (len(updates) if self.boost is None else self.boost)


@dataclass(frozen=True)
class SignFlip(Attack):
    """The own update, reversed.

    Attributes:
        scale: how much longer than the own update.
    """

    name: ClassVar[str] = "sign-flip"

    scale: float = 1.0

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """Their updates, with the sign turned."""
        return -self.scale * updates[malicious]


@dataclass(frozen=True)
class Gaussian(Attack):
    """Noise of a fixed size in every coordinate.

    Attributes:
        sigma: its standard deviation.
    """

    name: ClassVar[str] = "gaussian"

    sigma: float = 1.0

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """Normal noise of mean zero."""
        return self.sigma * _noise(updates[malicious], clients[malicious], seed, number)


def _noise(like: Tensor, clients: Tensor, seed: int, number: int) -> Tensor:
    """Standard normal noise, a stream per round and client."""
    rows = [
        torch.randn(like.shape[1], generator=torch_stream(seed, "attack", number, client), dtype=like.dtype)
        for client in clients.tolist()
    ]
    return torch.stack(rows).to(like.device)
