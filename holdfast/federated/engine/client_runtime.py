"""Where client functions run: the data, the network, the personal models, and nothing of the server's.

A runtime trains, tunes and scores some of its clients when told to. A simulation in one process has one runtime; worker
processes are forks of it; a node of a real federation has one with its own clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.errors import DataError
from holdfast.federated.engine.adam import Adam
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.local_training import LocalTraining, UsesTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.second_vector import SecondVector
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.engine.store import RowStore
from holdfast.federated.metrics.scoring import ClientScores, PartName, score_models, score_shared
from holdfast.federated.personalization.base import (
    ROLE,
    AlongsidePersonalizer,
    JointPersonalizer,
    Personalizer,
    PostHocPersonalizer,
)
from holdfast.federated.settings import Rounds

#: Personal models that are stacked into one computation: more would not fit into a CPU's caches.
_ROWS = 32
#: Where the second vectors that clients remember are kept; a word that labels no method.
SECOND = "second"


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


class ClientRuntime(UsesTraining):
    """Runs client functions.

    Args:
        clients: the data of all clients; training labels of malicious ones are poisoned already.
        network: the model.
        settings: local work and learning rates.
        personalizers: methods trained alongside and post-hoc ones in any number, and at most one joint method.
        proximal: strength of the proximal term towards the received model in the shared training (FedProx).
        needs_losses: whether clients report their loss at the received model.
        second: what clients do with a second vector beside the model, where there is one.
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
        second: SecondVector | None = None,
        folder: Path | None = None,
    ) -> None:
        self.training = LocalTraining(clients, network, settings)
        self.alongside = [method for method in personalizers if isinstance(method, AlongsidePersonalizer)]
        self.joint = [method for method in personalizers if isinstance(method, JointPersonalizer)]
        self.post_hoc = {method.label: method for method in personalizers if isinstance(method, PostHocPersonalizer)}
        self.proximal, self.needs_losses, self.second = proximal, needs_losses, second
        initial = {method.label: method.initial(network) for method in personalizers}
        if second is not None:
            initial[SECOND] = torch.zeros_like(network.initial)
        self.stores = {
            label: RowStore(len(clients), row, None if folder is None else folder / f"{label}.rows")
            for label, row in initial.items()
        }
        self._by_label = {method.label: method for method in personalizers}

    @property
    def clients(self) -> Clients:
        """The data of all clients."""
        return self.training.clients

    @property
    def message(self) -> int:
        """Numbers in what a client receives in a round, and in what it sends: the model, and a second vector."""
        return self.network.size * (1 if self.second is None else 2)

    @property
    def moves(self) -> list[str]:
        """Labels of the rows that a round of a client changes."""
        methods = [method.label for method in (*self.alongside, *self.joint)]
        return methods if self.second is None else [*methods, SECOND]

    # ---------------------------------------------------------------------------------------------- client functions

    def train(self, assignment: Assignment, received: Tensor, sent: Tensor, losses: Tensor) -> None:
        """One round of some clients.

        Args:
            assignment: which clients, and how many batches they have drawn.
            received: the shared model, and a second vector behind it where there is one, shape (`message`,).
            sent: where to put what each client sends, likewise, shape (clients, `message`).
            losses: where to put its training loss at the received model, where the server wants it, shape (clients,).
        """
        size = self.network.size
        received, beside = torch.split(received.to(self.network.device), [size, len(received) - size])
        stack = self.stack(assignment, received)
        rows = {label: self.stores[label].read(stack.clients) for label in self.moves}
        ascending = torch.argsort(stack.clients)
        if self.joint:
            sent.copy_(self.joint[0].train(stack, rows[self.joint[0].label])[ascending])
        else:
            local = self._local_steps(stack, rows, beside)
            if self.second is not None:
                rows[SECOND], change = self.second.after(rows[SECOND], beside, local, stack)
                sent[:, size:] = change[ascending].to(sent.device)
            in_order = bool((ascending.diff() > 0).all())
            local = local if in_order else local[ascending]
            if sent.device == local.device:
                torch.sub(local, received, out=sent[:, :size])
            else:
                sent[:, :size] = (local - received).to(sent.device)
        for label, row in rows.items():
            self.stores[label].write(stack.clients, row)
        losses.zero_()
        if self.needs_losses:
            losses.copy_(self.score(assignment.clients, "train", received).loss)

    def _local_steps(self, stack: StackedClients, rows: dict[str, Tensor], beside: Tensor) -> Tensor:
        """Local steps of the shared model, and of personal ones alongside, on the same batches (Ditto, Algorithm 2)."""
        local = stack.copies()
        adam = Adam(local) if self.settings.optimizer == "adam" else None
        correction = None if self.second is None else self.second.correction(rows[SECOND], beside, stack)
        for batch in stack.batches():
            now = local[: len(batch)]
            stack.sgd_step(now, batch, stack.learning_rate, (self.proximal, stack.received), adam=adam)
            if correction is not None:
                now.sub_(correction[: len(batch)], alpha=stack.learning_rate)
            self._step_alongside(rows, batch, now, stack)
        return local

    def _step_alongside(
        self, rows: dict[str, Tensor], batch: ClientBatch, local: Tensor, stack: StackedClients
    ) -> None:
        """A step of every method; gradients of several that run stacked are one computation."""
        here = {label: row[: len(batch)] for label, row in rows.items()}
        # Rows of methods times clients are as good as rows of clients: one pass for all. Not so for one client, where
        # the module itself is faster, nor with running statistics, which move in the very rows that a pass is given.
        stacked = [method for method in self.alongside if method.updates_from_gradient]
        if len(stacked) == 1 or len(batch) == 1 or self.network.tracks_statistics:
            stacked = []
        at_once = max(_ROWS // len(batch), 1)
        for group in (stacked[first : first + at_once] for first in range(0, len(stacked), at_once)):
            models = torch.cat([here[method.label][:, : self.network.size] for method in group])
            gradients = stack.gradient(models, batch.repeat(len(group)), ROLE)
            for method, gradient in zip(group, torch.split(gradients, len(batch)), strict=True):
                method.update(here[method.label], gradient, batch, local, stack)
        for method in self.alongside:
            if method not in stacked:
                method.step(here[method.label], batch, local, stack)

    def personalize(self, method: PostHocPersonalizer, clients: Tensor, received: Tensor) -> None:
        """Train the personal models of a method from the final shared model, and keep them."""
        received = received.to(self.network.device)
        stack = StackedClients(
            self.training,
            clients,
            received,
            drawn=torch.zeros_like(clients),
            steps=self.training.post_hoc_steps(method.epochs, clients),
            decay=self.settings.decay((method.starts_after or self.settings.rounds) - 1),
            start=None if method.follows is None else self.personal(method.follows, clients, received),
        )
        self.stores[method.label].write(stack.clients, method.personalize(stack))

    def score(self, clients: Tensor, part: PartName, shared: Tensor, label: str | None = None) -> ClientScores:
        """Loss and accuracy of the shared model, or of the personal models called `label`, on some clients' data."""
        if part not in self.clients.parts:
            raise DataError(f"these clients have no examples {part}; score another part")
        data, shared = self.clients.parts[part], shared.to(self.network.device)
        if label is None:
            return score_shared(self.network, shared, data, clients)
        return score_models(self.network, self.personal(label, clients, shared), data, clients)

    def personal(self, label: str, clients: Tensor, shared: Tensor) -> Tensor:
        """Personal models of some clients, shape (clients, P); the shared one for those that never took part."""
        store, shared = self.stores[label], shared.to(self.network.device)
        models = self._by_label[label].models(store.read(clients), shared, self.training, clients)
        models[~store.written[clients]] = shared
        return models

    # ---------------------------------------------------------------------------------------------- bookkeeping

    def stack(self, assignment: Assignment, received: Tensor) -> StackedClients:
        """The clients of an assignment, ready to train."""
        return StackedClients(
            self.training,
            assignment.clients,
            received,
            drawn=assignment.drawn,
            steps=self.training.steps(assignment.clients),
            decay=self.settings.decay(assignment.number),
        )

    def draws(self, clients: Tensor) -> Tensor:
        """Batches that each client draws in a round."""
        steps = self.training.steps(clients)
        return self.joint[0].draws(steps) if self.joint else steps
