"""Who attacks a federation, and how."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.federated.attacks import Attack, malicious_clients


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
        return self.attack.poison(clients, malicious, seed)
