"""Fine-tuning that draws some of a client's examples more often: known counterexamples (UW), or mistakes (JTT).

Both are compared with on the same shared model (Personalized FL with spurious features, Section 6.1). UW needs to be
given counterexamples; JTT looks for them among what a first fine-tuned model gets wrong (Liu et al., 2021).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError, DataError
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.early_stopping import AttackedClients, EarlyStoppedFineTuning
from holdfast.federated.personalization.transferability import FineTuned
from holdfast.streams import torch_stream


@dataclass(frozen=True)
class Upweighting(EarlyStoppedFineTuning):
    """Draws mini-batches with replacement, some examples `factor` times as often as others.

    Attributes:
        factor: how many times as often.
    """

    factor: float = 50.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.factor > 0:
            raise ConfigError(f"the factor is {self.factor}; give a positive number")

    @abstractmethod
    def marked(self, attacked: AttackedClients, place: int) -> Tensor:
        """Which training examples of the client at that place are drawn more often, bool of shape (n,)."""

    def batches(self, attacked: AttackedClients) -> Iterator[ClientBatch]:
        """As many mini-batches of the same size as the other methods see."""
        stack = attacked.stack
        part = stack.data.train
        tables = []
        for place, (id_, steps) in enumerate(zip(stack.clients.tolist(), stack.steps.tolist(), strict=True)):
            marked = self.marked(attacked, place)
            weights = torch.where(marked, self.factor, 1.0)
            size = min(stack.settings.batch_size, len(marked))
            generator = torch_stream(stack.settings.seed, "upweighting", id_)
            drawn = torch.multinomial(weights, steps * size, replacement=True, generator=generator)
            tables.append(drawn.view(steps, size) + part.offsets[id_])
        return stack.walk(tables, stack.steps)


@dataclass(frozen=True)
class UpWeighted(Upweighting):
    """UW: counterexamples, which the data marks by group 1, and other examples are drawn about equally often."""

    name: ClassVar[str] = "uw"

    def check_data(self, clients: Clients) -> None:
        """Refuse data without counterexamples.

        Raises:
            DataError: if the data has no groups.
        """
        _groups_of(clients.train)

    def marked(self, attacked: AttackedClients, place: int) -> Tensor:
        """Examples of group 1."""
        part = attacked.stack.data.train
        id_ = int(attacked.stack.clients[place])
        return _groups_of(part)[part.offsets[id_] : part.offsets[id_ + 1]] == 1


def _groups_of(part: ClientPart) -> Tensor:
    if part.groups is None:
        raise DataError(
            "uw draws counterexamples more often, and the clients' training data has none that are marked; give "
            "the data some, as in --painted-mnist.counterexamples 0.02"
        )
    return part.groups


@dataclass(frozen=True)
class JustTrainTwice(Upweighting):
    """JTT: what a first fine-tuned model gets wrong is drawn more often by a second one.

    Attributes:
        first_epochs: of the first model.
    """

    name: ClassVar[str] = "jtt"
    first_epochs: int = 5

    def marked(self, attacked: AttackedClients, place: int) -> Tensor:
        """Examples that the first model gets wrong."""
        stack = attacked.stack
        one = stack.clients[place : place + 1]
        first = FineTuned(epochs=self.first_epochs)
        alone = StackedClients(
            stack.training,
            one,
            stack.received,
            drawn=torch.zeros_like(one),
            steps=stack.training.post_hoc_steps(first.epochs, one),
            decay=stack.decay,
        )
        models = alone.copies()
        for _ in first.sgd_step(models, alone.batches(), AttackedClients(alone, self.attack)):
            pass
        inputs, labels = stack.data.train.of(int(one))
        with torch.no_grad():
            outputs = stack.network.outputs(models, inputs[None].to(models.device))[0]
            return ~stack.network.correct(outputs.cpu(), labels)
