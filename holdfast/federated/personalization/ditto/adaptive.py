"""Lambda chosen by each client, from its own validation data (Ditto, Appendix G.4).

A client knows its validation data and whether the attack is strong, nothing else. With fewer than four validation
examples it can't choose and takes a fixed lambda. Otherwise it tries a few candidates and keeps the one with the lowest
validation loss: at every step (`DynamicDitto`), or once, among models that were trained side by side (`ParallelDitto`).
Test data is never looked at, and how often each lambda was chosen is kept for the report.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.engine.store import RowStore
from holdfast.federated.personalization.base import ROLE
from holdfast.federated.personalization.ditto.ditto import Ditto
from holdfast.federated.personalization.ditto.proximal import refuse_negative

#: Lambdas to try, and the lambda of a client that can't choose, by whether the attack is strong.
CANDIDATES = {False: (0.1, 1.0, 2.0), True: (0.05, 0.1, 0.2)}
SMALL_LAMBDA = {False: 1.0, True: 0.1}
#: Validation examples from which on a client chooses.
ENOUGH = 4

_BLOCK = 64


@dataclass(frozen=True)
class AdaptiveDitto(Ditto):
    """Ditto whose clients choose their lambda.

    Attributes:
        candidates: lambdas that a client tries.
        small_lambda: lambda of a client with fewer than four validation examples.
    """

    candidates: tuple[float, ...] = CANDIDATES[False]
    small_lambda: float = SMALL_LAMBDA[False]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.candidates:
            raise ConfigError("there are no candidates for lambda; give at least one")
        for lambda_ in self.lambdas:
            refuse_negative(lambda_)

    @property
    def lambdas(self) -> tuple[float, ...]:
        """All lambdas that a client may have, ascending."""
        return tuple(sorted({*self.candidates, self.small_lambda}))

    @property
    def label(self) -> str:
        """The name: lambda is no number that could be added to it."""
        return f"{self.name}{self.variant}"

    @abstractmethod
    def chosen(self, store: RowStore, training: LocalTraining) -> Tensor:
        """How often each client has chosen each of `lambdas`, shape (clients, lambdas).

        Args:
            store: the clients' rows.
            training: has the network and the validation data.
        """

    def _choose(self, training: LocalTraining, clients: Tensor, tried: Tensor) -> Tensor:
        """The place in `lambdas` of each client's choice.

        Args:
            training: has the validation data.
            clients: ids.
            tried: models of shape (candidates, clients, P).
        """
        best = training.mean_losses("validation", clients, tried).argmin(0)
        places = torch.tensor([self.lambdas.index(lambda_) for lambda_ in self.candidates])
        return places[best]

    def _can_choose(self, training: LocalTraining, clients: Tensor) -> Tensor:
        return training.counts("validation", clients) >= ENOUGH


@dataclass(frozen=True)
class DynamicDitto(AdaptiveDitto):
    """Ditto whose clients choose lambda anew at every step, by the validation loss after that step.

    A client's row is its model and, behind it, how often it took each lambda.
    """

    name: ClassVar[str] = "ditto-auto"
    lambda_: float | Literal["auto", "parallel"] = "auto"

    def row_of(self, model: Tensor) -> Tensor:
        """The model, and no lambda chosen yet."""
        return torch.cat([model, model.new_zeros(len(self.lambdas))])

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """The rows without the counts."""
        return super().models(rows, shared, training, clients)[:, : len(shared)]

    def chosen(self, store: RowStore, training: LocalTraining) -> Tensor:
        """Steps that each client took with each lambda, shape (clients, lambdas)."""
        size, everybody = training.network.size, torch.arange(len(store))
        return torch.cat([store.read(block)[:, size:] for block in torch.split(everybody, _BLOCK)]).long()

    def update(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """Ditto's step with each lambda, from one gradient; the model with the lowest validation loss is kept."""
        models, counts = rows[:, : stack.network.size], rows[:, stack.network.size :]
        choice = torch.full((len(batch),), self.lambdas.index(self.small_lambda))
        able = self._can_choose(stack.training, batch.clients)
        rate, away = stack.personal_rate, self.away(models, batch, stack)
        if not able.any():
            stack.descend(models, self.direction(models, gradient, self.small_lambda, local, stack, away=away), rate)
        else:
            directions = {
                lambda_: self.direction(models, gradient, lambda_, local, stack, away=away) for lambda_ in self.lambdas
            }
            tried = {
                lambda_: stack.attempt(models, direction, rate, lambda_) for lambda_, direction in directions.items()
            }
            offered = torch.stack([tried[lambda_][able] for lambda_ in self.candidates])
            choice[able] = self._choose(stack.training, batch.clients[able], offered)
            for place, lambda_ in enumerate(self.lambdas):
                models[choice == place] = tried[lambda_][choice == place]
            stack.keep([self.lambdas[place] for place in choice.tolist()])
        counts[torch.arange(len(batch)), choice] += 1


@dataclass(frozen=True)
class ParallelDitto(AdaptiveDitto):
    """Ditto with a model per lambda on each client, of which the best on validation data is used in the end.

    Costs as much as running Ditto once per lambda. A client's row is its models one after another.
    """

    name: ClassVar[str] = "ditto-parallel"
    lambda_: float | Literal["auto", "parallel"] = "parallel"

    def row_of(self, model: Tensor) -> Tensor:
        """The model once per lambda."""
        return model.repeat(len(self.lambdas))

    def models_in(self, rows: Tensor, size: int) -> Sequence[Tensor]:
        """The model of each lambda."""
        return torch.split(rows, size, dim=1)

    def step_on(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """A step of Ditto for each lambda, each from the gradient at its own models."""
        for lambda_, models in zip(self.lambdas, self.models_in(rows, stack.network.size), strict=True):
            gradient = stack.gradient(models, batch, ROLE)
            direction = self.direction(models, gradient, lambda_, local, stack, away=self.away(models, batch, stack))
            stack.descend(models, direction, stack.personal_rate, lambda_)

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """For each client the model of the lambda it chooses now."""
        self.fill(rows, shared, training.network)
        choice = self._choices(rows, training, clients)
        return rows.view(len(rows), len(self.lambdas), -1)[torch.arange(len(rows)), choice]

    def chosen(self, store: RowStore, training: LocalTraining) -> Tensor:
        """One for the lambda that a client would choose now, shape (clients, lambdas); zeros if it never took part."""
        blocks = torch.split(torch.arange(len(store)), _BLOCK)
        choices = torch.cat([self._choices(store.read(block), training, block) for block in blocks])
        return torch.nn.functional.one_hot(choices, len(self.lambdas)) * store.written[:, None]

    def _choices(self, rows: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        models = dict(zip(self.lambdas, self.models_in(rows, training.network.size), strict=True))
        choice = torch.full((len(rows),), self.lambdas.index(self.small_lambda))
        able = self._can_choose(training, clients)
        if able.any():
            offered = torch.stack([models[lambda_][able] for lambda_ in self.candidates])
            choice[able] = self._choose(training, clients[able], offered)
        return choice
