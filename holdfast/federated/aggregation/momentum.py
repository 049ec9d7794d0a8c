"""Momentum of every client, kept by the server: the average of what a client sent, recent updates counting most.

A small bias that an attacker repeats in every round passes rules that see one round only. Averaged over time the noise
of honest clients falls, and the bias stands out (Karimireddy et al., 2021, https://arxiv.org/abs/2012.10333). There
clients send momentum. Here the server computes it of what they send, so it also works with clients that take part now
and then. It keeps a vector per client: clients x parameters numbers, in its checkpoints too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation.base import Memory, PreStep, RoundFacts

_ROWS, _BEGUN = "momentum/rows", "momentum/begun"


@dataclass(frozen=True)
class ClientMomentum(PreStep):
    """Replace every update by its client's momentum; another rule follows, such as centred clipping.

    Attributes:
        beta: share of the old momentum in the new; 0 leaves updates as they are.
    """

    name: ClassVar[str] = "momentum"

    beta: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ConfigError(f"momentum's beta is {self.beta:g}; give a number from 0 to below 1")

    @property
    def needs_clients(self) -> bool:
        """It keeps a vector of each."""
        return True

    def begin(self, clients: int, parameters: int) -> Memory:
        """No client has a momentum yet."""
        return {_ROWS: torch.zeros(clients, parameters), _BEGUN: torch.zeros(clients, dtype=torch.bool)}

    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The momentum after these updates; a client's first update is its momentum."""
        if facts.clients is None or _ROWS not in memory:
            return updates, memory
        rows, begun = memory[_ROWS].to(updates.dtype).clone(), memory[_BEGUN].clone()
        largest = torch.finfo(updates.dtype).max
        # Rounding may carry a mean of the largest numbers beyond them.
        mixed = (self.beta * rows[facts.clients] + (1 - self.beta) * updates).clamp(-largest, largest)
        rows[facts.clients] = torch.where(begun[facts.clients, None], mixed, updates)
        begun[facts.clients] = True
        return rows[facts.clients], {**memory, _ROWS: rows, _BEGUN: begun}
