"""What an attack is: a function of the updates of a round, and who among the senders is malicious."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.federated.attacks.poisoning import poison_labels

#: The step that a server would take, shape (parameters,), from updates (m, parameters).
Defence = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Attack(ABC):
    """What malicious clients send in a round."""

    name: ClassVar[str]
    #: Whether malicious clients also train on poisoned labels.
    poisons_labels: ClassVar[bool] = False

    def poison(self, clients: Clients, malicious: Tensor, seed: int) -> Clients:
        """The clients' data as malicious ones train on it; test and validation data stay clean.

        Args:
            clients: the data.
            malicious: ids of malicious clients.
            seed: of the run.
        """
        if not self.poisons_labels:
            return clients
        labels = poison_labels(clients.train.labels, clients.train.owners(), malicious, clients.classes, seed)
        return replace(clients, train=replace(clients.train, labels=labels))

    def send(
        self,
        updates: Tensor,
        malicious: Tensor,
        *,
        clients: Tensor,
        seed: int,
        number: int,
        defence: Defence | None = None,
    ) -> Tensor:
        """What the server receives.

        Args:
            updates: what every client would send if it were honest, shape (m, parameters).
            malicious: which of them are malicious, bool of shape (m,).
            clients: their ids, shape (m,).
            seed: of the run.
            number: of the round.
            defence: the server's step if it received such updates, for attacks that try it out.

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
