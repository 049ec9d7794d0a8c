"""Clients share a part of the model and keep the other: what FedPer, FedRep and FedBN have in common.

A client puts its own part into the model that it receives, trains, keeps its part and sends the change of the rest. Its
personal model is at any time the shared part as it is now with the client's own. What clients keep is never sent: it is
zero in their updates, so the shared model has that part as it began, and is no model by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from holdfast.federated.personalization.base import JointPersonalizer

if TYPE_CHECKING:
    from holdfast.federated.engine.local_training import LocalTraining
    from holdfast.federated.engine.network import Network
    from holdfast.federated.engine.stacked_clients import StackedClients


@dataclass(frozen=True)
class PartlyLocal(JointPersonalizer):
    """A method whose clients keep a part of the model. Derive, and write `columns`; a client's row is that part."""

    shares_whole_model: ClassVar[bool] = False

    @abstractmethod
    def columns(self, network: Network) -> Tensor:
        """Which places in a model stay with the client, ascending, int64.

        Raises:
            ConfigError: if the model has no such part.
        """

    def check_network(self, network: Network) -> None:
        """Refuse a model without the part, or without anything else."""
        super().check_network(network)
        self.columns(network)

    def initial(self, network: Network) -> Tensor:
        """The client's part of the initial model."""
        return network.initial[self.columns(network)]

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """The shared part as it is now, with each client's own."""
        return shared.repeat(len(rows), 1).index_copy_(1, self.columns(training.network), rows)

    def train(self, stack: StackedClients, rows: Tensor) -> Tensor:
        """One round; what is sent is zero in the client's part."""
        columns = self.columns(stack.network)
        models = stack.copies().index_copy_(1, columns, rows)
        self.fit(models, columns, stack)
        rows.copy_(models.index_select(1, columns))
        return models.sub_(stack.received).index_fill_(1, columns, 0.0)

    def fit(self, models: Tensor, columns: Tensor, stack: StackedClients) -> None:
        """Local training, in place: both parts together, as in training without personalization.

        Args:
            models: shape (clients, P).
            columns: what stays with the client.
            stack: the clients.
        """
        for batch in stack.batches():
            stack.sgd_step(models[: len(batch)], batch, stack.learning_rate)
