"""Adapt the final shared model to each client, look at it at checkpoints, and keep the one that validation likes best.

The loop that methods against local shortcuts share (Personalized FL with spurious features, Sections 5 and 6): the
client's own loss, a regulariser, the federation's optimizer with a fresh state. At every checkpoint the client looks at
its validation data, and at nothing else, to choose. Accuracy in and out of its environment is written down for the
report, where nothing is chosen any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.adam import Adam
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.engine.store import RowStore
from holdfast.federated.metrics.scoring import score_models
from holdfast.federated.personalization.adversarial import Crafted, craft, transfer
from holdfast.federated.personalization.base import ROLE, AllClients, PostHocPersonalizer
from holdfast.federated.personalization.crafted_store import CraftedStore
from holdfast.primitives.pgd import Norm, Pgd

#: What is written down at a checkpoint: the step, accuracy and transferability on validation data, accuracy and loss in
#: and out of the client's environment, transferability and its loss on test data, distance from the shared model.
RECORDED = (
    "step",
    "validation",
    "validation_transfer",
    "accuracy",
    "accuracy_elsewhere",
    "loss",
    "loss_elsewhere",
    "transfer",
    "transfer_of_correct",
    "transfer_loss",
    "distance",
)
#: Validation examples from which on a client chooses its checkpoint alone; others take one that suits all of them.
ENOUGH = 30


@dataclass(frozen=True, eq=False)
class AttackedClients:
    """The clients of this loop, and adversarial versions of their examples.

    Attributes:
        stack: the clients.
        attack: makes adversarial examples from the shared model.
    """

    stack: StackedClients
    attack: Pgd

    @property
    def network(self) -> Network:
        """The network."""
        return self.stack.network

    @cached_property
    def train(self) -> Crafted:
        """Adversarial versions of the training examples."""
        return self._craft("train")

    @cached_property
    def validation(self) -> Crafted:
        """Adversarial versions of the validation examples."""
        return self._craft("validation")

    @cached_property
    def test(self) -> Crafted:
        """Adversarial versions of the test examples, for the report."""
        return self._craft("test")

    def _craft(self, part: str) -> Crafted:
        stack = self.stack
        store = CraftedStore.of(stack.training, stack.received, self.attack)
        return store.get(
            part,
            stack.clients,
            lambda: craft(self.network, stack.received, stack.data.parts[part], stack.clients, self.attack),
        )


@dataclass(frozen=True)
class EarlyStoppedFineTuning(PostHocPersonalizer):
    """Fine-tuning with checkpoints; methods add a regulariser, or choose other examples.

    A client's row is the chosen model and, behind it, which checkpoint it is and what was `RECORDED` at each.

    Attributes:
        epochs: walks through a client's data.
        checkpoints: how many, evenly spaced; the last is the end of training. The shared model is none of them.
        keep: the `best` checkpoint by the method's score on validation data, or the `last`.
        epsilon: budget of the attack that makes adversarial examples, by which transferability is measured.
        attack_steps: of it.
        norm: in which perturbations are small.
        pixels: whether inputs are images in 0..1, which adversarial examples must be then too.
        called: the name in tables and files, where a method is run twice.
        common: the checkpoint of clients that have too little validation data to choose; found by running all clients
            once by default.
    """

    name: ClassVar[str] = "adapting"
    needs_classes: ClassVar[bool] = True
    needs_examples: ClassVar[bool] = True
    epochs: int = 5
    checkpoints: int = 5
    keep: Literal["best", "last"] = "best"
    epsilon: float = 8 / 255
    attack_steps: int = 10
    norm: Norm = "inf"
    pixels: bool = True
    called: str = ""
    common: int | None = None

    @property
    def label(self) -> str:
        """What it is called."""
        return self.called or self.name

    @property
    def attack(self) -> Pgd:
        """Makes adversarial examples from the shared model."""
        return Pgd(self.epsilon, self.attack_steps, norm=self.norm, bounds=(0.0, 1.0) if self.pixels else None)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.attack
        if self.checkpoints < 1:
            raise ConfigError(f"checkpoints is {self.checkpoints}; give at least 1")

    # ---------------------------------------------------------------------------------------------- what methods change

    def batches(self, attacked: AttackedClients) -> Iterator[ClientBatch]:
        """The examples of each step; mini-batches of shuffled training data by default."""
        return attacked.stack.batches()

    def regularizer(self, at: Tensor, now: Tensor, batch: ClientBatch, attacked: AttackedClients) -> Tensor | None:
        """What is added to the loss, summed over clients.

        Args:
            at: the models, shape (clients, P), with respect to which the gradient is taken.
            now: the same numbers; its running statistics move with every further pass.
            batch: of this step.
            attacked: adversarial examples and the rest.
        """
        return None

    def score(self, accuracy: float, transferred: float) -> float:
        """By which checkpoints are compared: validation accuracy, and for some methods what transfers."""
        return accuracy

    # ---------------------------------------------------------------------------------------------- the loop

    def personalize(self, stack: StackedClients) -> Tensor:
        """Train, look, keep."""
        attacked = AttackedClients(stack, self.attack)
        models = stack.copies()
        rows = self.initial(attacked.network).repeat(len(stack), 1)
        best = torch.full((len(stack),), -torch.inf, dtype=torch.float64)
        ends = [self._ends(int(steps)) for steps in stack.steps]
        for step, active in enumerate(self.sgd_step(models, self.batches(attacked), attacked), start=1):
            for place in range(active):
                for number in (each for each, end in enumerate(ends[place]) if end == step):
                    self._look(rows[place], models[place], attacked, (place, number), best)
        return rows

    def sgd_step(self, models: Tensor, batches: Iterable[ClientBatch], attacked: AttackedClients) -> Iterator[int]:
        """Train models in place, step by step; yields how many clients took the step."""
        stack = attacked.stack
        adam = Adam(models) if stack.settings.optimizer == "adam" else None
        for batch in batches:
            now = models[: len(batch)]
            gradient = self._gradient(now, batch, attacked)
            if adam is None:
                now.sub_(gradient, alpha=stack.personal_rate)
            else:
                adam.step(now, gradient, stack.personal_rate)
            yield len(batch)

    def _ends(self, steps: int) -> list[int]:
        """After which step each checkpoint is."""
        return [max(round(steps * number / self.checkpoints), 1) for number in range(1, self.checkpoints + 1)]

    def _gradient(self, now: Tensor, batch: ClientBatch, attacked: AttackedClients) -> Tensor:
        network = attacked.network
        at = now.clone().requires_grad_()
        outputs = attacked.stack.outputs(at, batch, batch.inputs, statistics=now, role=ROLE)
        loss = (network.losses(outputs, batch.labels) * batch.weights).sum() + network.penalty(at).sum()
        more = self.regularizer(at, now, batch, attacked)
        (gradient,) = torch.autograd.grad(loss if more is None else loss + more, at)
        return gradient

    def _look(
        self, row: Tensor, model: Tensor, attacked: AttackedClients, where: tuple[int, int], best: Tensor
    ) -> None:
        """Write down how a client's model does at a checkpoint, and keep it where it is the best so far."""
        place, number = where
        size = attacked.network.size
        table = row[size + 1 :].view(self.checkpoints, len(RECORDED))
        step = self._ends(int(attacked.stack.steps[place]))[number]
        table[number] = torch.tensor([float(step), *self._measured(model, attacked, place)])
        accuracy, transferred = float(table[number, 1]), float(table[number, 2])
        count = int(attacked.stack.data.validation.counts[attacked.stack.clients[place]])
        if self.keep == "last":
            score = float(number)
        elif count >= ENOUGH:
            score = self.score(accuracy, transferred)
        else:
            score = float(number == (self.checkpoints - 1 if self.common is None else self.common))
        if score > best[place]:
            best[place] = score
            row[:size], row[size] = model, number

    def _measured(self, model: Tensor, attacked: AttackedClients, place: int) -> list[float]:
        network, one = attacked.network, attacked.stack.clients[place : place + 1]
        parts = attacked.stack.data.parts

        def scored(part: str) -> tuple[float, float]:
            if part not in parts or not int(parts[part].counts[one]):
                return float("nan"), float("nan")
            scores = score_models(network, model[None], parts[part], one)
            return float(scores.accuracy), float(scores.loss)

        accuracy, loss = scored("test")
        elsewhere, loss_elsewhere = scored("elsewhere")
        held_out = transfer(network, model, attacked.validation, place)
        tested = transfer(network, model, attacked.test, place)
        distance = (model - attacked.stack.received)[: network.trainable].double().norm()
        return [
            scored("validation")[0],
            held_out.rate,
            accuracy,
            elsewhere,
            loss,
            loss_elsewhere,
            tested.rate,
            tested.rate_of_correct,
            tested.loss,
            float(distance),
        ]

    # ---------------------------------------------------------------------------------------------- rows

    def initial(self, network: Network) -> Tensor:
        """The initial model, and nothing recorded."""
        behind = network.initial.new_full((1 + self.checkpoints * len(RECORDED),), torch.nan)
        return torch.cat([network.initial, behind])

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """The rows without what is recorded."""
        return rows[:, : len(shared)]

    def record(self, store: RowStore, training: LocalTraining) -> Tensor:
        """What was recorded, shape (clients, checkpoints, quantities of `RECORDED`)."""
        return self._behind(store, training)[:, 1:].view(len(store), self.checkpoints, len(RECORDED))

    def chosen(self, store: RowStore, training: LocalTraining) -> Tensor:
        """The checkpoint that each client keeps, int64 of shape (clients,)."""
        return self._behind(store, training)[:, 0].long()

    def _behind(self, store: RowStore, training: LocalTraining) -> Tensor:
        return store.read(torch.arange(len(store)), first=training.network.size)

    def choose_hyperparameters(self, everybody: AllClients, shared: Tensor) -> PostHocPersonalizer:
        """Find the checkpoint of clients that can't choose alone: the best on average over them."""
        few = everybody.training.clients.validation.counts < ENOUGH
        if self.keep == "last" or self.common is not None or not few.any():
            return self
        everybody.personalize_all(self, shared)
        record = self.record(everybody.rows(self.label), everybody.training)[few]
        scores = torch.tensor(
            [[self.score(float(seen[1]), float(seen[2])) for seen in client] for client in record], dtype=torch.float64
        )
        return replace(self, common=int(scores.nanmean(0).argmax()))
