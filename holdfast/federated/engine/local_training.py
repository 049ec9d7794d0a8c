"""What clients train with: their data, the network, the settings, and the order in which mini-batches are drawn.

A value without a server, without personal models and without a round: `StackedClients` and the methods see this much
and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.study import Way
from holdfast.federated.settings import Rounds

#: Examples that are looked at to find out how a network runs.
_STUDIED = 8


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """What local training is made of.

    Attributes:
        clients: the data of all clients; training labels of malicious ones are poisoned already.
        network: the model.
        settings: local work and learning rates.
    """

    clients: Clients
    network: Network
    settings: Rounds

    @cached_property
    def stream(self) -> BatchStream:
        """Which examples make up each mini-batch of each client."""
        return BatchStream(self.settings.seed, self.settings.batch_size, self.settings.shuffle)

    def study(self) -> Way:
        """Find out how the network runs several clients, on some training examples; the answer is kept."""
        inputs = self.clients.train.inputs[:_STUDIED]
        return self.network.study(inputs.to(self.network.device)) if len(inputs) else Way("rows")

    def steps(self, clients: Tensor) -> Tensor:
        """Local steps of each client in a round, int64 of shape (clients,)."""
        if self.settings.local_epochs is None:
            return torch.full_like(clients, self.settings.local_steps)
        sizes = self.clients.train.counts[clients].tolist()
        return self.settings.local_epochs * torch.tensor([self.stream.per_pass(size) for size in sizes])

    def post_hoc_steps(self, epochs: int, clients: Tensor) -> Tensor:
        """max(floor(E n / B), E) steps for E epochs over n examples in batches of B, as Ditto's authors' program does.

        int64 of shape (clients,).
        """
        sizes = self.clients.train.counts[clients]
        return (epochs * sizes // self.settings.batch_size).clamp(min=epochs)


class UsesTraining:
    """What has a `LocalTraining` answers for its network and settings.

    Attributes:
        training: what clients train with.
    """

    training: LocalTraining

    @property
    def network(self) -> Network:
        """The model."""
        return self.training.network

    @property
    def settings(self) -> Rounds:
        """Local work and learning rates."""
        return self.training.settings
