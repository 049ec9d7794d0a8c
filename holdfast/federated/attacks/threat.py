"""Who attacks a federation, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.federated.attacks import Attack, malicious_clients, poison_labels


@dataclass(frozen=True)
class Threat:
    """Who attacks, and how.

    Attributes:
        attack: what malicious clients do.
        ratio: share of clients that are malicious; the number is rounded down. What the server expects is a setting
            of its own, `holdfast.federated.expectation`, and this share where nothing else is said.
    """

    attack: Attack
    ratio: float

    def malicious(self, clients: int, seed: int) -> Tensor:
        """Ids of the malicious among so many clients, the same for every method under a seed."""
        return malicious_clients(clients, self.ratio, seed)

    def poison(self, clients: Clients, malicious: Tensor, seed: int) -> Clients:
        """The clients' data as malicious ones train on it; test and validation data stay clean."""
        if not self.attack.poisons_labels:
            return clients
        labels = poison_labels(clients.train.labels, clients.train.owners(), malicious, clients.classes, seed)
        return replace(clients, train=replace(clients.train, labels=labels))
