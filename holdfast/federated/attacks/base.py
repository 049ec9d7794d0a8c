"""What an attack is: a function of the updates of a round, and who among the senders is malicious."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True)
class Attack(ABC):
    """What malicious clients send in a round."""

    name: ClassVar[str]
    #: Whether malicious clients also train on poisoned labels.
    poisons_labels: ClassVar[bool] = False

    def send(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """What the server receives.

        Args:
            updates: what every client would send if it were honest, shape (m, parameters).
            malicious: which of them are malicious, bool of shape (m,).
            clients: their ids, shape (m,).
            seed: of the run.
            number: of the round.

        Returns:
            Shape (m, parameters); rows of benign clients are unchanged.
        """
        if not malicious.any():
            return updates
        sent = updates.clone()
        sent[malicious] = self.forge(updates, malicious, clients=clients, seed=seed, number=number)
        return sent

    @abstractmethod
    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """What the malicious clients send, shape (attackers, parameters), or (parameters,) if all send the same.

        Args:
            updates: as for `send`.
            malicious: as for `send`, with at least one.
            clients: as for `send`.
            seed: as for `send`.
            number: as for `send`.
        """
