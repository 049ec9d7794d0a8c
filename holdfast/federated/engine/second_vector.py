"""A second vector beside the model: what clients receive with it, and send with their update.

FedAvg's messages hold a model one way and an update the other way. Some methods need one more vector of the same length
on both ways, such as SCAFFOLD's control variates, and a client that remembers one between rounds. An objective that
does answers `FederatedObjective.second` with a `SecondVector`; its client's half is here, the server's half in
`combine`.

The two vectors travel as one row of numbers, the model's first. So every executor, the pool's shared memory and the
messages of Flower carry them by what they know already: the length of a row. What clients remember lies in a `RowStore`
like personal models: saved with every checkpoint in a simulation, and on the node's disk elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from holdfast.federated.engine.stacked_clients import StackedClients


class SecondVector(ABC):
    """What a client does with its second vectors; P is the length of the model."""

    @abstractmethod
    def correction(self, kept: Tensor, received: Tensor, stack: StackedClients) -> Tensor:
        """What is added to the gradient of every local step of the shared model.

        Args:
            kept: what clients remember, shape (clients, P); zero before a client's first round.
            received: the second vector that the server sent, shape (P,).
            stack: the clients.

        Returns:
            Shape (clients, P).
        """

    @abstractmethod
    def after(self, kept: Tensor, received: Tensor, local: Tensor, stack: StackedClients) -> tuple[Tensor, Tensor]:
        """What is remembered and what is sent, once the local steps are done.

        Args:
            kept: as for `correction`.
            received: as for `correction`.
            local: the clients' models after their steps, shape (clients, P).
            stack: the clients.

        Returns:
            What clients remember from now on and what they send beside their update, each of shape (clients, P).
        """
