"""Train the final shared model further on each client: fine-tuning, EWC and SKL (Ditto, Appendices C and F.2, Table 3).

One loop, ``v <- v - eta (g + lambda d)``, from the final shared model w*. The methods differ in d, the direction that
leads away from w*: they measure the distance to w* in parameters, in parameters that matter, or in predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.federated.engine.adam import Adam
from holdfast.federated.engine.network import ClientBatch, Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import ROLE, PostHocPersonalizer
from holdfast.federated.personalization.ditto.proximal import refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds

#: From models of shape (clients, P) and their batch to the gradient of their distance from w*, shape (clients, P).
Away = Callable[[Tensor, ClientBatch], Tensor]

_FISHER_BATCHES = 4


@dataclass(frozen=True)
class RegularizedFineTuning(PostHocPersonalizer):
    """The loop; with the optimizer of the shared model, see `Rounds.optimizer`.

    Attributes:
        lambda_: strength of the proximal term towards the shared model.
    """

    lambda_: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_negative(self.lambda_)

    @property
    def label(self) -> str:
        """The name, with lambda where there is one."""
        return f"{self.name}-{self.lambda_:g}" if self.lambda_ else self.name

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
        """Refuse a proximal term that overshoots."""
        refuse_overshoot(self.lambda_, settings.personal_rate)


@dataclass(frozen=True)
class Ewc(RegularizedFineTuning):
    """Elastic weight consolidation: parameters that matter for the shared model's predictions stay close to it."""

    name: ClassVar[str] = "ewc"
    lambda_: float = 1.0

    def away(self, stack: StackedClients) -> Away:
        """``Fi (v - w*)`` with the Fisher information Fi of each parameter."""
        fisher = fisher_diagonal(stack)
        return lambda now, batch: fisher[: len(now)] * (now - stack.received)


@dataclass(frozen=True)
class Skl(RegularizedFineTuning):
    """Symmetrised KL: predictions on the client's training inputs stay close to those of the shared model."""

    name: ClassVar[str] = "skl"
    needs_classes: ClassVar[bool] = True
    lambda_: float = 1.0

    def away(self, stack: StackedClients) -> Away:
        """Gradient of half the symmetrised divergence from w*, on the batch."""
        network, shared = stack.network, stack.copies()

        def direction(now: Tensor, batch: ClientBatch) -> Tensor:
            with torch.no_grad():
                target = network.outputs(shared[: len(batch)], batch.inputs)
            at = now.detach().requires_grad_()
            divergence = symmetric_divergence(
                _logits(network, network.outputs(at, batch.inputs)), _logits(network, target)
            )
            (gradient,) = torch.autograd.grad((divergence * batch.weights).sum() / 2, at)
            return gradient

        return direction


def fisher_diagonal(stack: StackedClients) -> Tensor:
    """The empirical Fisher diagonal of each client at the shared model: mean squared gradient over four batches.

    Returns:
        Shape (clients, P).
    """
    models = stack.copies()
    squares = torch.zeros_like(models)
    for batch in stack.batches(torch.full_like(stack.steps, _FISHER_BATCHES)):
        squares += stack.network.gradient(models, batch).square_()
    return squares.div_(_FISHER_BATCHES)


def symmetric_divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of the softmax of two sets of logits, shape (..., classes) to (...)."""
    log_p, log_q = F.log_softmax(logits, -1), F.log_softmax(others, -1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)


def _logits(network: Network, outputs: Tensor) -> Tensor:
    """Outputs as logits of classes; a single margin is the logit of class 1 against 0."""
    return F.pad(outputs, (1, 0)) if network.task == "margin" else outputs
