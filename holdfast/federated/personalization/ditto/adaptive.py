"""Lambda chosen on each client, from its own validation data (Ditto, Appendix G.4).

A client knows its validation data and whether the attack is strong, nothing else. With fewer than four validation
examples it can't choose and takes a fixed lambda. Otherwise it tries a few candidates and keeps the one with the lowest
validation loss: at every step (`DynamicDitto`), or once, among models that were trained side by side (`ParallelDitto`).
Test data is never looked at, and how often each lambda was chosen is kept for the report.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.attacks import ModelReplacement
from holdfast.federated.engine.network import ClientBatch, Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import ROLE, AlongsidePersonalizer
from holdfast.federated.personalization.ditto.proximal import Anchor, refuse_negative, refuse_overshoot
from holdfast.federated.personalization.validation_losses import validation_losses
from holdfast.federated.settings import Rounds

if TYPE_CHECKING:
    from holdfast.federated.attacks.threat import Threat
    from holdfast.federated.engine.client_runtime import ClientRuntime

#: Lambdas to try, and the lambda of a client that can't choose, by whether the attack is strong.
CANDIDATES = {False: (0.1, 1.0, 2.0), True: (0.05, 0.1, 0.2)}
SMALL_LAMBDA = {False: 1.0, True: 0.1}
#: Validation examples from which on a client chooses.
ENOUGH = 4

_BLOCK = 64


def strong_attack(threat: Threat | None) -> bool:
    """Whether an attack is strong: any model replacement (A3), or any attack by more than half of the clients."""
    return threat is not None and (isinstance(threat.attack, ModelReplacement) or threat.ratio > 0.5)


@dataclass(frozen=True)
class AdaptiveDitto(AlongsidePersonalizer):
    """Ditto whose clients choose their lambda.

    Attributes:
        candidates: lambdas that a client tries.
        small_lambda: lambda of a client with fewer than four validation examples.
        anchor: what personal models are pulled towards, see `Anchor`.
    """

    candidates: tuple[float, ...] = CANDIDATES[False]
    small_lambda: float = SMALL_LAMBDA[False]
    anchor: Anchor = "received"

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError("there are no candidates for lambda; give at least one")
        for lambda_ in self.lambdas:
            refuse_negative(lambda_)

    @property
    def lambdas(self) -> tuple[float, ...]:
        """All lambdas that a client may have, ascending."""
        return tuple(sorted({*self.candidates, self.small_lambda}))

    def check(self, settings: Rounds) -> None:
        """Refuse a candidate whose proximal term overshoots."""
        refuse_overshoot(self.lambdas[-1], settings.personal_rate)

    @abstractmethod
    def chosen(self, runtime: ClientRuntime) -> Tensor:
        """How often each client has chosen each of `lambdas`, shape (clients, lambdas)."""

    def _choose(self, runtime: ClientRuntime, clients: Tensor, tried: Tensor) -> Tensor:
        """The place in `lambdas` of each client's choice.

        Args:
            runtime: has the validation data.
            clients: ids.
            tried: models of shape (candidates, clients, P).
        """
        best = validation_losses(runtime, runtime.clients.validation, clients, tried).argmin(0)
        places = torch.tensor([self.lambdas.index(lambda_) for lambda_ in self.candidates])
        return places[best]

    def _can_choose(self, runtime: ClientRuntime, clients: Tensor) -> Tensor:
        return runtime.clients.validation.counts[clients] >= ENOUGH


@dataclass(frozen=True)
class DynamicDitto(AdaptiveDitto):
    """Ditto whose clients choose lambda anew at every step, by the validation loss after that step.

    A client's row is its model and, behind it, how often it took each lambda.
    """

    name: ClassVar[str] = "ditto-auto"
    moves_by_gradient: ClassVar[bool] = True

    def initial(self, network: Network) -> Tensor:
        """The initial model, and no lambda chosen yet."""
        return torch.cat([network.initial, torch.zeros(len(self.lambdas), dtype=network.initial.dtype)])

    def models(self, rows: Tensor, shared: Tensor, runtime: ClientRuntime, clients: Tensor) -> Tensor:
        """The rows without the counts."""
        return rows[:, : len(shared)]

    def chosen(self, runtime: ClientRuntime) -> Tensor:
        """Steps that each client took with each lambda, shape (clients, lambdas)."""
        store = runtime.stores[self.label]
        counts = [
            store.read(block)[:, runtime.network.size :] for block in torch.split(torch.arange(len(store)), _BLOCK)
        ]
        return torch.cat(counts).long()

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """``v <- v - eta (g + lambda (v - w))`` with each lambda, of which the best on validation data is kept."""
        gradient = stack.gradient(rows[:, : len(stack.received)], batch, ROLE)
        self.move(rows, gradient, batch, local, stack)

    def move(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """The same from a gradient."""
        models, counts = rows[:, : len(stack.received)], rows[:, len(stack.received) :]
        anchor = stack.received if self.anchor == "received" else local

        def after(lambda_: float) -> Tensor:
            direction = stack.runtime.network.with_proximal(gradient, models, (lambda_, anchor))
            return torch.sub(models, direction, alpha=stack.personal_rate)

        choice = torch.full((len(batch),), self.lambdas.index(self.small_lambda))
        able = self._can_choose(stack.runtime, batch.clients)
        if not able.any():
            models.copy_(after(self.small_lambda))
        else:
            tried = {lambda_: after(lambda_) for lambda_ in self.lambdas}
            offered = torch.stack([tried[lambda_][able] for lambda_ in self.candidates])
            choice[able] = self._choose(stack.runtime, batch.clients[able], offered)
            for place, lambda_ in enumerate(self.lambdas):
                models[choice == place] = tried[lambda_][choice == place]
        counts[torch.arange(len(batch)), choice] += 1


@dataclass(frozen=True)
class ParallelDitto(AdaptiveDitto):
    """Ditto with a model per lambda on each client, of which the best on validation data is used in the end.

    Costs as much as running Ditto once per lambda. A client's row is its models one after another.
    """

    name: ClassVar[str] = "ditto-parallel"

    def initial(self, network: Network) -> Tensor:
        """The initial model once per lambda."""
        return network.initial.repeat(len(self.lambdas))

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """A step of Ditto for each lambda."""
        anchor = stack.received if self.anchor == "received" else local
        for lambda_, models in zip(self.lambdas, torch.split(rows, len(stack.received), dim=1), strict=True):
            stack.sgd_step(models, batch, stack.personal_rate, (lambda_, anchor), role=ROLE)

    def models(self, rows: Tensor, shared: Tensor, runtime: ClientRuntime, clients: Tensor) -> Tensor:
        """For each client the model of the lambda it chooses now."""
        choice = self._choices(rows, runtime, clients)
        return rows.view(len(rows), len(self.lambdas), -1)[torch.arange(len(rows)), choice]

    def chosen(self, runtime: ClientRuntime) -> Tensor:
        """One for the lambda that a client would choose now, shape (clients, lambdas); zeros if it never took part."""
        store = runtime.stores[self.label]
        choices = [
            self._choices(store.read(block), runtime, block) for block in torch.split(torch.arange(len(store)), _BLOCK)
        ]
        return torch.nn.functional.one_hot(torch.cat(choices), len(self.lambdas)) * store.written[:, None]

    def _choices(self, rows: Tensor, runtime: ClientRuntime, clients: Tensor) -> Tensor:
        models = dict(zip(self.lambdas, torch.split(rows, runtime.network.size, dim=1), strict=True))
        choice = torch.full((len(rows),), self.lambdas.index(self.small_lambda))
        able = self._can_choose(runtime, clients)
        if able.any():
            offered = torch.stack([models[lambda_][able] for lambda_ in self.candidates])
            choice[able] = self._choose(runtime, clients[able], offered)
        return choice


def lambda_record(runtime: ClientRuntime) -> dict[str, dict[str, Any]]:
    """For each method that chooses, its `lambdas` and how often each client has chosen each of them, ready for JSON."""
    return {
        method.label: {"lambdas": list(method.lambdas), "chosen": method.chosen(runtime).tolist()}
        for method in runtime.alongside
        if isinstance(method, AdaptiveDitto)
    }
