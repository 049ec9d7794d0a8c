"""What runs client functions: one after another, stacked, or on worker processes.

Clients are cut into chunks before anybody is asked who runs them: ascending by id, a fixed number to a chunk. A
client's result depends on its chunk and on nothing else, so it is the same to the bit whatever the number of workers
and the order in which clients were named. Between executors, whose chunks differ, results agree to rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.federated.engine.client_runtime import Assignment, ClientRuntime
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.store import RowStore
from holdfast.federated.metrics.scoring import ClientScores, PartName, gather
from holdfast.federated.personalization.base import PostHocPersonalizer

#: Memory that one stacked computation should take.
_CHUNK_BYTES = 32 * 2**20
_LARGEST_CHUNK = 64


class Executor(ABC):
    """Runs client functions of a runtime.

    Args:
        runtime: the clients, the network and the personal models.
        chunk: clients that are stacked into one computation.
    """

    def __init__(self, runtime: ClientRuntime, chunk: int) -> None:
        self.runtime, self.chunk = runtime, chunk
        # Before anybody is forked: all processes run the network in the same way.
        runtime.training.study()

    @property
    def training(self) -> LocalTraining:
        """What clients train with."""
        return self.runtime.training

    def rows(self, label: str) -> RowStore:
        """The personal rows of the method of that label."""
        return self.runtime.stores[label]

    @abstractmethod
    def train(self, assignments: Sequence[Assignment], received: Tensor, updates: Tensor, losses: Tensor) -> None:
        """Run assignments, and put what clients send into rows of `updates` and `losses`, one after another."""

    @abstractmethod
    def personalize(self, method: PostHocPersonalizer, chunks: Sequence[Tensor], received: Tensor) -> None:
        """Run a method on chunks of clients."""

    @abstractmethod
    def score(self, chunks: Sequence[Tensor], part: PartName, shared: Tensor, label: str | None) -> list[ClientScores]:
        """Score chunks of clients."""

    def close(self) -> None:  # noqa: B027
        """Let processes go, where there are any."""

    # ---------------------------------------------------------------------------------------------- by clients

    def round(self, number: int, clients: Tensor, drawn: Tensor, received: Tensor) -> tuple[Tensor, Tensor]:
        """One round.

        Args:
            number: of the round.
            clients: who takes part, in any order.
            drawn: how many batches each client of the federation has drawn, shape (all clients,).
            received: the shared model, and a second vector behind it where there is one, shape (message,).

        Returns:
            What clients send, shape (clients, message), and their losses, both ascending by client.
        """
        assignments = [Assignment(number, chunk, drawn[chunk]) for chunk in self.chunks(clients)]
        updates, losses = self._buffers(len(clients))
        self.train(assignments, received, updates, losses)
        order = torch.cat([assignment.clients for assignment in assignments])
        if bool((order.diff() < 0).any()):
            ascending = torch.argsort(order)
            updates, losses = updates[ascending], losses[ascending]
        return updates, losses

    def joined(self, clients: Tensor) -> Tensor:
        """Those of the last round's clients whose rows there are, ascending: all of them, unless they are elsewhere."""
        return clients

    def personalize_all(self, method: PostHocPersonalizer, received: Tensor) -> None:
        """Run a method on every client; those with similar work share a chunk."""
        everybody = torch.arange(len(self.runtime.clients))
        steps = self.training.post_hoc_steps(method.epochs, everybody)
        alike = self._batch_sizes(everybody) if self.runtime.network.batch_dependent else steps
        self.personalize(method, self._alike(everybody, alike), received)

    def score_all(self, part: PartName, shared: Tensor, label: str | None = None) -> ClientScores:
        """Scores of every client."""
        everybody = torch.arange(len(self.runtime.clients))
        if label is None:
            chunks = list(torch.split(everybody, max(len(everybody) // 8, 1)))
        else:
            chunks = self._alike(everybody, self.runtime.clients.parts[part].counts)
        return gather(self.score(chunks, part, shared, label))

    def chunks(self, clients: Tensor) -> list[Tensor]:
        """The clients, ascending, cut into chunks; only batches of the same size where a batch's examples interact."""
        ordered = torch.sort(clients).values
        if not self.runtime.network.batch_dependent:
            return list(torch.split(ordered, self.chunk))
        return self._alike(ordered, self._batch_sizes(ordered))

    def _batch_sizes(self, clients: Tensor) -> Tensor:
        return self.runtime.clients.train.counts[clients].clamp(max=self.runtime.settings.batch_size)

    def _alike(self, clients: Tensor, size: Tensor) -> list[Tensor]:
        ordered = clients[torch.argsort(size, stable=True)]
        if not self.runtime.network.batch_dependent:
            return list(torch.split(ordered, self.chunk))
        sizes = torch.sort(size, stable=True).values
        borders = torch.unique_consecutive(sizes, return_counts=True)[1].tolist()
        return [chunk for same in torch.split(ordered, borders) for chunk in torch.split(same, self.chunk)]

    def _buffers(self, clients: int) -> tuple[Tensor, Tensor]:
        network = self.runtime.network
        updates = torch.empty(clients, self.runtime.message, dtype=network.initial.dtype, device=network.device)
        return updates, torch.empty(clients, dtype=torch.float64)


def default_chunk(training: LocalTraining) -> int:
    """Clients that fit together into a CPU's caches, by an estimate of what their parameters and activations take.

    The chunks of a round are an even number of about the same size, so that two or four workers share them evenly.
    """
    example = training.clients.train.inputs[0].numel()
    activations = (40 if training.network.convolves else 4) * training.settings.batch_size * example
    per_client = 4 * (6 * training.network.size + activations)
    most = min(max(_CHUNK_BYTES // per_client, 1), _LARGEST_CHUNK)
    cohort = min(training.settings.cohort, len(training.clients))
    return math.ceil(cohort / (2 * math.ceil(cohort / (2 * most))))
