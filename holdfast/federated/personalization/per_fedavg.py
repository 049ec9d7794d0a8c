"""Per-FedAvg: a shared model that is good after one gradient step on a client (Fallah et al., 2020), the HF variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import JointPersonalizer, PostHocPersonalizer
from holdfast.federated.personalization.fine_tuning import FineTuning


@dataclass(frozen=True)
class TunedPerFedAvg(FineTuning):
    """Fine-tuning of the model that Per-FedAvg trained."""

    name: ClassVar[str] = "per-fedavg-tuned"


@dataclass(frozen=True)
class PerFedAvg(JointPersonalizer):
    """Minimises the mean of ``F_k(w - alpha grad F_k(w))``; products with the Hessian are differences of gradients.

    Two personal models are reported: ``per-fedavg`` is one step from the shared model, as the method is defined, and
    ``per-fedavg-tuned`` has the budget of fine-tuning, as Ditto compares it.

    Attributes:
        beta: step size of the shared model on clients.
        alpha: step size of the personal step; the learning rate by default.
        delta: how far apart the two gradients are that give the product with the Hessian.
        epochs: of the fine-tuning that follows.
    """

    name: ClassVar[str] = "per-fedavg"
    beta: float = 0.01
    alpha: float | None = None
    delta: float = 1e-3
    epochs: int = 50

    def __post_init__(self) -> None:
        for option in ("beta", "alpha", "delta"):
            value = getattr(self, option)
            if value is not None and not value > 0:
                raise ConfigError(f"Per-FedAvg's {option} is {value}; give a positive number")

    def draws(self, steps: Tensor) -> Tensor:
        """Three independent batches per step."""
        return 3 * steps

    def initial(self, network: Network) -> Tensor:
        """Nothing is kept on clients; a number stands for it."""
        return network.initial.new_zeros(1)

    def train(self, stack: StackedClients, rows: Tensor) -> Tensor:
        """``w <- w - beta g + alpha beta H g``, with g at ``w - alpha grad F(w)``."""
        alpha = stack.learning_rate if self.alpha is None else self.alpha
        local = stack.copies()
        batches = stack.batches(self.draws(stack.steps))
        for first, second, third in zip(batches, batches, batches, strict=True):
            now = local[: len(first)]
            ahead = now - alpha * stack.gradient(now, first)
            g = stack.gradient(ahead, second)
            forth, back = (stack.gradient(now + sign * self.delta * g, third) for sign in (1, -1))
            hessian_g = (forth - back) / (2 * self.delta)
            now.sub_(g - alpha * hessian_g, alpha=self.beta)
        return local.sub_(stack.received)

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """One step from the shared model, on the first mini-batch of a client's training data."""
        groups = torch.split(clients, 1 if training.network.batch_dependent else len(clients))
        return torch.cat([self._stepped(shared, training, group) for group in groups])

    def _stepped(self, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        stack = training.stacked(clients, shared, drawn=torch.zeros_like(clients), steps=torch.ones_like(clients))
        models = stack.copies()
        gradient = training.network.gradient(models, next(stack.batches()))
        return models.sub_(gradient, alpha=stack.learning_rate if self.alpha is None else self.alpha)

    def follow_up(self) -> PostHocPersonalizer:
        """Fine-tuning."""
        return TunedPerFedAvg(epochs=self.epochs)
