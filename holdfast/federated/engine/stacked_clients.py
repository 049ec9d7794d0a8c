"""Some clients that work through the same steps at the same time: what a method's client function is given.

A method is written once, for a stack: models of shape (clients, P), a batch per client and step. Run one client at a
time, a stack has one row; run stacked, it has many. Clients with fewer steps come last, so those that are still at
work are always the first rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.federated.engine.adam import Adam
from holdfast.federated.engine.batches import pad
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.draws import Draws
from holdfast.federated.engine.local_training import LocalTraining, UsesTraining
from holdfast.federated.engine.proximal import ProximalTerm


class StackedClients(UsesTraining):
    """Clients of one round that run together.

    Args:
        training: the data, the network and the settings.
        clients: ids, int64 of shape (clients,).
        received: the model that the server sent, shape (P,).
        drawn: how many batches each of these clients has drawn so far, int64 of shape (clients,).
        steps: how many steps each client takes, int64 of shape (clients,).
        decay: what the learning rates are multiplied by.
        start: personal models that post-hoc training starts from, shape (clients, P); the received model by default.

    Attributes:
        kept: what a method computes once for the round, by a name of its own.
    """

    def __init__(
        self,
        training: LocalTraining,
        clients: Tensor,
        received: Tensor,
        *,
        drawn: Tensor,
        steps: Tensor,
        decay: float = 1.0,
        start: Tensor | None = None,
    ) -> None:
        # Those with most steps first: the clients still at work are then always the first rows, without a mask.
        order = torch.argsort(steps, descending=True, stable=True)
        self.training = training
        self.clients, self.drawn, self.steps = clients[order], drawn[order], steps[order]
        self.received = received
        self._start = None if start is None else start[order]
        self.decay = decay
        self.kept: dict[str, Tensor] = {}
        self.learning_rate = decay * training.settings.learning_rate
        self.personal_rate = decay * training.settings.personal_rate

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def data(self) -> Clients:
        """The data of all clients of the federation."""
        return self.training.clients

    def start(self) -> Tensor:
        """Where post-hoc training starts, shape (clients, P): the received model unless another method's was given."""
        return self.copies() if self._start is None else self._start.clone()

    def copies(self) -> Tensor:
        """The received model, once per client, shape (clients, P)."""
        return self.received.repeat(len(self), 1)

    def batches(self, counts: Tensor | None = None) -> Iterator[ClientBatch]:
        """The mini-batches of the round, those of the first clients only where the others are done.

        Args:
            counts: how many each client draws, never rising from one client to the next; one per step by default.

        Yields:
            A batch of the first ``len(batch)`` clients.
        """
        part, stream = self.training.clients.train, self.training.stream
        sizes = part.counts[self.clients]
        counts = self.steps if counts is None else counts
        rows = [
            stream.rows(client, size, first, count) + offset
            for client, size, first, count, offset in zip(
                self.clients.tolist(),
                sizes.tolist(),
                self.drawn.tolist(),
                counts.tolist(),
                part.offsets[self.clients].tolist(),
                strict=True,
            )
        ]
        yield from self.walk(rows, counts)

    def walk(self, rows: list[Tensor], counts: Tensor, part: ClientPart | None = None) -> Iterator[ClientBatch]:
        """Mini-batches of given examples.

        Args:
            rows: for each client, rows of the data, shape (number of its batches, size of its batches).
            counts: how many each client draws, never rising from one client to the next.
            part: the data; the training data by default.

        Yields:
            A batch of the first ``len(batch)`` clients.
        """
        part = part or self.training.clients.train
        width = max(batch.shape[1] for batch in rows)
        table, weights = pad(rows, width)
        weights = weights.to(self.received)
        even = all(batch.shape[1] == width for batch in rows)
        left = counts.tolist()
        for step in range(max(left)):
            active = sum(count > step for count in left)
            chosen = table[:active, step]
            # Data stays in the host's memory, and a batch at a time moves. Names of clients, draws and rows stay there.
            inputs, labels = (each.to(self.received.device) for each in part.gather(chosen))
            yield ClientBatch(
                inputs,
                labels,
                weights[:active],
                self.clients[:active],
                self.drawn[:active] + step,
                chosen,
                even,
            )

    def outputs(self, models: Tensor, batch: ClientBatch, inputs: Tensor, *, statistics: Tensor, role: str) -> Tensor:
        """Outputs of a training pass for `inputs`, which take the place of the batch's, shape (clients, batch, c).

        Args:
            models: where gradients are wanted, shape (clients, P).
            batch: names the clients and their draws, which decide what is dropped.
            inputs: shape (clients, batch, ...).
            statistics: rows whose running statistics move, in place; no view of `models`.
            role: of the model, which is part of the names of what it draws.
        """
        return self.network.outputs(models, inputs, self._draws(batch, role), statistics=statistics)

    def gradient(self, models: Tensor, batch: ClientBatch, role: str = "shared") -> Tensor:
        """Gradients of the training loss at `models`, one row per client of the batch, shape (clients, P)."""
        return self.network.gradient(models, batch, self._draws(batch, role))

    def sgd_step(
        self,
        models: Tensor,
        batch: ClientBatch,
        rate: float,
        proximal: ProximalTerm | None = None,
        *,
        role: str = "shared",
        adam: Adam | None = None,
    ) -> None:
        """One step in place, ``v <- v - rate (g + strength (v - anchor))`` with a proximal term, or Adam's.

        A proximal term of strength 0 is not looked at, so its anchor may be infinite.
        """
        network = self.network
        if adam is None:
            wanted = proximal if proximal is not None and proximal[0] != 0 else None
            network.sgd_step(models, batch, rate, wanted, self._draws(batch, role))
        else:
            adam.step(models, network.with_proximal(self.gradient(models, batch, role), models, proximal), rate)

    def draw_anew(self, steps: int) -> Iterator[ClientBatch]:
        """Mini-batches for so many steps of a model that walks through its client's data on its own.

        A client draws as often in one round as in another, so that the rounds it has been in say where it stands.
        """
        rounds = self.drawn // self.steps
        own = torch.full_like(self.steps, steps)
        return self.training.stacked(self.clients, self.received, drawn=rounds * steps, steps=own).batches()

    # ---------------------------------------------------------------------------------------------- how models move
    #
    # Personal models take plain steps here. A client with an optimizer of its own, in somebody's Flower project,
    # answers these three instead, so that every method runs with any optimizer of torch.

    def descend(self, models: Tensor, direction: Tensor, rate: float, model: Hashable = "") -> None:
        """One step in place, ``v <- v - rate d``.

        Args:
            models: v, shape (clients, P).
            direction: d, of the same shape.
            rate: the learning rate.
            model: tells several models of a client apart, for an optimizer that remembers something of each.
        """
        models.sub_(direction, alpha=rate)

    def attempt(self, models: Tensor, direction: Tensor, rate: float, attempt: Hashable) -> Tensor:
        """What such a step would give, shape (clients, P); `keep` says which of several attempts is taken."""
        return models.sub(direction, alpha=rate)

    def keep(self, attempts: Sequence[Hashable]) -> None:
        """Each client's attempt that became its model; plain steps remember nothing of it."""

    def _draws(self, batch: ClientBatch, role: str) -> Draws:
        """Names of (client, batch, role) for what is drawn: what one model drops can't shift another's draws."""
        return Draws(self.settings.seed, role, tuple(batch.clients.tolist()), tuple(batch.draws.tolist()))
