"""Where client functions run: the data, the network, the personal models, and nothing of the server's.

A runtime trains, tunes and scores some of its clients when told to. A simulation in one process has one runtime; worker
processes are forks of it; a node of a real federation has one with its own clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.errors import DataError
from holdfast.federated.engine.adam import Adam
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.network import ClientBatch, Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.engine.store import RowStore
from holdfast.federated.metrics.scoring import ClientScores, score_models, score_shared
from holdfast.federated.personalization.base import (
    ROLE,
    AlongsidePersonalizer,
    JointPersonalizer,
    Personalizer,
    PostHocPersonalizer,
)
from holdfast.federated.settings import Rounds

#: Which examples of a client.
PartName = Literal["train", "validation", "test", "elsewhere"]

#: Personal models that are stacked into one computation: more would not fit into a CPU's caches.
_ROWS = 32


@dataclass(frozen=True)
class Assignment:
    """What the server asks of some clients in a round.

    Attributes:
        number: of the round, from 0.
        clients: ids, ascending, int64 of shape (clients,).
        drawn: how many batches they have drawn, int64 of shape (clients,).
    """

    number: int
    clients: Tensor
    drawn: Tensor


class ClientRuntime:
    """Runs client functions.

    Args:
        clients: the data of all clients; training labels of malicious ones are poisoned already.
        network: the model.
        settings: local work and learning rates.
        personalizers: methods trained alongside and post-hoc ones in any number, and at most one joint method.
        proximal: strength of the proximal term towards the received model in the shared training (FedProx).
        needs_losses: whether clients report their loss at the received model.
        folder: where personal models are kept; in temporary files by default.
    """

    def __init__(
        self,
        clients: Clients,
        network: Network,
        settings: Rounds,
        personalizers: Sequence[Personalizer] = (),
        *,
        proximal: float = 0.0,
        needs_losses: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.clients, self.network, self.settings = clients, network, settings
        self.stream = BatchStream(settings.seed, settings.batch_size, settings.shuffle)
        self.alongside = [method for method in personalizers if isinstance(method, AlongsidePersonalizer)]
        self.joint = [method for method in personalizers if isinstance(method, JointPersonalizer)]
        self.post_hoc = {method.label: method for method in personalizers if isinstance(method, PostHocPersonalizer)}
        self.proximal, self.needs_losses = proximal, needs_losses
        self.stores = {
            method.label: RowStore(
                len(clients), method.initial(network), None if folder is None else folder / f"{method.label}.rows"
            )
            for method in personalizers
        }
        self._by_label = {method.label: method for method in personalizers}

    @cached_property
    def mask_shapes(self) -> list[tuple[float, tuple[int, ...]]]:
        """Of the network's dropout layers, for one example."""
        return self.network.mask_shapes(self.clients.train.inputs[:2])

    # ---------------------------------------------------------------------------------------------- client functions

    def train(self, order: Assignment, received: Tensor, sent: Tensor, losses: Tensor) -> None:
        """One round of some clients.

        Args:
            order: which clients, and how many batches they have drawn.
            received: the shared model, shape (P,).
            sent: where to put what each client sends, shape (clients, P).
            losses: where to put its training loss at the received model, where the server wants it, shape (clients,).
        """
        stack = self.stack(order, received)
        rows = {
            method.label: self.stores[method.label].read(stack.clients) for method in (*self.alongside, *self.joint)
        }
        ascending = torch.argsort(stack.clients)
        if self.joint:
            sent.copy_(self.joint[0].train(stack, rows[self.joint[0].label])[ascending])
        else:
            local = self._local_steps(stack, rows)
            in_order = bool((ascending.diff() > 0).all())
            torch.sub(local if in_order else local[ascending], received, out=sent)
        for label, kept in rows.items():
            self.stores[label].write(stack.clients, kept)
        losses.zero_()
        if self.needs_losses:
            losses.copy_(self.score(order.clients, "train", received).loss)

    def _local_steps(self, stack: StackedClients, rows: dict[str, Tensor]) -> Tensor:
        """Local steps of the shared model, and of personal ones alongside, on the same batches (Ditto, Algorithm 2)."""
        local = stack.copies()
        adam = Adam(local) if self.settings.optimizer == "adam" else None
        for batch in stack.batches():
            now = local[: len(batch)]
            stack.sgd_step(now, batch, stack.learning_rate, (self.proximal, stack.received), adam=adam)
            self._step_alongside(rows, batch, now, stack)
        return local

    def _step_alongside(
        self, rows: dict[str, Tensor], batch: ClientBatch, local: Tensor, stack: StackedClients
    ) -> None:
        """A step of every method; gradients of several that run stacked are one computation."""
        here = {label: row[: len(batch)] for label, row in rows.items()}
        stacked = [method for method in self.alongside if method.moves_by_gradient]
        if len(stacked) == 1 or len(batch) == 1 or self.network.tracks_statistics:
            stacked = []
        at_once = max(_ROWS // len(batch), 1)
        for group in (stacked[first : first + at_once] for first in range(0, len(stacked), at_once)):
            models = torch.cat([here[method.label][:, : self.network.size] for method in group])
            gradients = stack.gradient(models, batch.repeat(len(group)), ROLE)
            for method, gradient in zip(group, torch.split(gradients, len(batch)), strict=True):
                method.move(here[method.label], gradient, batch, local, stack)
        for method in self.alongside:
            if method not in stacked:
                method.step(here[method.label], batch, local, stack)

    def personalize(self, method: PostHocPersonalizer, clients: Tensor, received: Tensor) -> None:
        """Train the personal models of a method from the final shared model, and keep them."""
        stack = StackedClients(
            self,
            clients,
            received,
            drawn=torch.zeros_like(clients),
            steps=self.post_hoc_steps(method, clients),
            decay=self.settings.decay(self.settings.rounds - 1),
        )
        self.stores[method.label].write(stack.clients, method.personalize(stack))

    def score(self, clients: Tensor, part: PartName, shared: Tensor, label: str | None = None) -> ClientScores:
        """Loss and accuracy of the shared model, or of the personal models called `label`, on some clients' data."""
        if part not in self.clients.parts:
            raise DataError(f"these clients have no examples {part}; score another part")
        data = self.clients.parts[part]
        if label is None:
            return score_shared(self.network, shared, data, clients)
        return score_models(self.network, self.personal(label, clients, shared), data, clients)

    def personal(self, label: str, clients: Tensor, shared: Tensor) -> Tensor:
        """Personal models of some clients, shape (clients, P); the shared one for those that never took part."""
        store = self.stores[label]
        models = self._by_label[label].models(store.read(clients), shared, self, clients)
        models[~store.written[clients]] = shared
        return models

    # ---------------------------------------------------------------------------------------------- bookkeeping

    def stack(self, order: Assignment, received: Tensor) -> StackedClients:
        """The clients of an order, ready to train."""
        decay = self.settings.decay(order.number)
        return StackedClients(
            self, order.clients, received, drawn=order.drawn, steps=self.steps(order.clients), decay=decay
        )

    def steps(self, clients: Tensor) -> Tensor:
        """Local steps of each client in a round."""
        if self.settings.local_epochs is None:
            return torch.full_like(clients, self.settings.local_steps)
        sizes = self.clients.train.counts[clients].tolist()
        return self.settings.local_epochs * torch.tensor([self.stream.per_pass(size) for size in sizes])

    def draws(self, clients: Tensor) -> Tensor:
        """Batches that each client draws in a round."""
        steps = self.steps(clients)
        return self.joint[0].draws(steps) if self.joint else steps

    def post_hoc_steps(self, method: PostHocPersonalizer, clients: Tensor) -> Tensor:
        """max(floor(E n / B), E) steps for E epochs (Ditto, Section 2.3 of its program)."""
        sizes = self.clients.train.counts[clients]
        return (method.epochs * sizes // self.settings.batch_size).clamp(min=method.epochs)
