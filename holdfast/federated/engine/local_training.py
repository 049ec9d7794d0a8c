"""What clients train with: their data, the network, the settings, and the order in which mini-batches are drawn.

A value without a server, without personal models and without a round: `StackedClients` and the methods see this much
and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.study import Way
from holdfast.federated.metrics.scoring import PartName, score_models
from holdfast.federated.settings import Rounds

if TYPE_CHECKING:
    from holdfast.federated.engine.stacked_clients import StackedClients

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

    def stacked(
        self, clients: Tensor, received: Tensor, *, drawn: Tensor, steps: Tensor, start: Tensor | None = None
    ) -> StackedClients:
        """Some clients that run together from a model on; arguments as of `StackedClients`."""
        from holdfast.federated.engine.stacked_clients import StackedClients  # noqa: PLC0415 - it is made of this

        return StackedClients(self, clients, received, drawn=drawn, steps=steps, start=start)

    def steps(self, clients: Tensor) -> Tensor:
        """Local steps of each client in a round, int64 of shape (clients,)."""
        if self.settings.local_epochs is None:
            return torch.full_like(clients, self.settings.local_steps)
        sizes = self.clients.train.counts[clients].tolist()
        return self.settings.local_epochs * torch.tensor([self.stream.per_pass(size) for size in sizes])

    @property
    def participation(self) -> float:
        """Share of the clients that take part in a round."""
        return self.settings.cohort / len(self.clients)

    def counts(self, part: PartName, clients: Tensor) -> Tensor:
        """How many examples each client has in a part, int64 of shape (clients,)."""
        return self.clients.parts[part].counts[clients]

    def mean_losses(self, part: PartName, clients: Tensor, models: Tensor) -> Tensor:
        """Mean losses of several models per client on its own data; infinite where a model has diverged.

        It is how clients choose lambda, and mapper its share.

        Args:
            part: of the data.
            clients: ids.
            models: shape (models, clients, P).

        Returns:
            float64 of shape (models, clients).
        """
        times, network = len(models), self.network
        groups = torch.split(torch.arange(len(clients)), 1 if network.scores_depend_on_batch else len(clients))
        losses = [
            score_models(
                network, models[:, group].flatten(0, 1), self.clients.parts[part], clients[group].repeat(times)
            ).loss
            for group in groups
        ]
        stacked = torch.cat([loss.view(times, -1) for loss in losses], dim=1)
        return torch.nan_to_num(stacked, nan=torch.inf, posinf=torch.inf)

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
