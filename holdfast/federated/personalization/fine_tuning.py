"""Train the final shared model further on each client: fine-tuning, EWC and SKL (Ditto, Appendices C and F.2, Table 3).

One loop, ``v <- v - eta (g + lambda d)``, from the final shared model w*. The methods differ in d, the direction that
leads away from w*: they measure the distance to w* in parameters, in parameters that matter, or in predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.adam import Adam
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import ROLE, PostHocPersonalizer
from holdfast.federated.personalization.distances import Fisher, divergence_gradient, fisher_diagonal
from holdfast.federated.personalization.ditto.proximal import refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds

#: From models of shape (clients, P) and their batch to the gradient of their distance from w*, shape (clients, P).
Away = Callable[[Tensor, ClientBatch], Tensor]


@dataclass(frozen=True)
class RegularizedFineTuning(PostHocPersonalizer):
    """The loop; with the optimizer of the shared model, see `Rounds.optimizer`.

    Attributes:
        lambda_: strength of the proximal term towards the shared model.
        after: start from the shared model as it was after so many rounds, rather than from the final one: under attack
            an early one may be better (Ditto, Figure 8), though clients can't see when (Figure 9).
    """

    lambda_: float = 0.0
    after: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_negative(self.lambda_)
        if self.after is not None and self.after < 1:
            raise ConfigError(f"{self.name} is to start after {self.after} rounds; give at least 1, or leave it out")

    @property
    def label(self) -> str:
        """The name, with lambda and the rounds before it where there are such."""
        label = f"{self.name}-{self.lambda_:g}" if self.lambda_ else self.name
        return label if self.after is None else f"{label}-after-{self.after}"

    @property
    def starts_after(self) -> int | None:
        """The rounds before it."""
        return self.after

    def check(self, settings: Rounds) -> None:
        """Refuse to start from rounds that are not there."""
        if self.after is not None and self.after > settings.rounds:
            raise ConfigError(
                f"{self.name} is to start after {self.after} rounds, and there are {settings.rounds}; give fewer"
            )

    def away(self, stack: StackedClients) -> Away | None:
        """The direction away from the shared model, where it is not the straight one."""
        return None

    def personalize(self, stack: StackedClients) -> Tensor:
        """``v <- v - eta (g + lambda d)``."""
        models, rate = stack.start(), stack.personal_rate
        away = self.away(stack) if self.lambda_ else None
        adam = Adam(models) if stack.settings.optimizer == "adam" else None
        for batch in stack.batches():
            now = models[: len(batch)]
            if away is None:
                stack.sgd_step(now, batch, rate, (self.lambda_, stack.received), role=ROLE, adam=adam)
                continue
            direction = stack.gradient(now, batch, ROLE).add_(away(now, batch), alpha=self.lambda_)
            if adam is None:
                stack.descend(now, direction, rate)
            else:
                adam.step(now, direction, rate)
        return models


@dataclass(frozen=True)
class FineTuning(RegularizedFineTuning):
    """Plain fine-tuning; with a lambda it is Ditto's second solver, ``d = v - w*``."""

    name: ClassVar[str] = "finetuning"

    def check(self, settings: Rounds) -> None:
        """Refuse a proximal term that overshoots, too."""
        super().check(settings)
        refuse_overshoot(self.lambda_, settings.personal_rate)


@dataclass(frozen=True)
class Ewc(RegularizedFineTuning):
    """Elastic weight consolidation: parameters that matter for the shared model's predictions stay close to it.

    Attributes:
        fisher: what is squared for the Fisher information: the mean gradient of each of four mini-`batches`, as the
            documents' program does, or the gradient of each of their `examples`, which is the empirical Fisher
            information of the literature, and needs a pass per example.
    """

    name: ClassVar[str] = "ewc"
    lambda_: float = 1.0
    fisher: Fisher = "batches"

    def away(self, stack: StackedClients) -> Away:
        """``Fi (v - w*)`` with the Fisher information Fi of each parameter."""
        fisher = fisher_diagonal(stack, self.fisher)
        return lambda now, batch: fisher[: len(now)] * (now - stack.received)


@dataclass(frozen=True)
class Skl(RegularizedFineTuning):
    """Symmetrised KL: predictions on the client's training inputs stay close to those of the shared model."""

    name: ClassVar[str] = "skl"
    needs_classes: ClassVar[bool] = True
    lambda_: float = 1.0

    def away(self, stack: StackedClients) -> Away:
        """Gradient of half the symmetrised divergence from w*, on the batch."""
        shared = stack.copies()
        return lambda now, batch: divergence_gradient(stack.network, now, shared[: len(batch)], batch)
