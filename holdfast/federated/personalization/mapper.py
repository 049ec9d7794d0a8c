"""Mapper: a client's own model and the shared one, mixed with a share per client (Mansour et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.apfl import mixture
from holdfast.federated.personalization.base import ROLE, JointPersonalizer, PostHocPersonalizer
from holdfast.federated.personalization.fine_tuning import FineTuning


@dataclass(frozen=True)
class TunedMapper(FineTuning):
    """Fine-tuning of each client's interpolated model, or of the shared one where a client never took part."""

    name: ClassVar[str] = "mapper-tuned"
    follows: ClassVar[str | None] = "mapper"


@dataclass(frozen=True)
class Mapper(JointPersonalizer):
    """Tries several shares, keeps the one with the lowest training loss, and moves the shared model by it.

    A client's row is its model and, behind it, its alpha. ``mapper`` is the interpolated model, ``mapper-tuned`` the
    same after fine-tuning, which is the method's result.

    Attributes:
        alphas: shares of the client's own model to try.
        epochs: of the fine-tuning that follows.
    """

    name: ClassVar[str] = "mapper"
    keeps_statistics: ClassVar[bool] = False
    alphas: tuple[float, ...] = (0.25, 0.5, 0.75)
    epochs: int = 50

    def __post_init__(self) -> None:
        if not self.alphas or not all(0 <= alpha <= 1 for alpha in self.alphas):
            raise ConfigError(f"mapper's alphas are {self.alphas}; give numbers from 0 to 1")

    def draws(self, steps: Tensor) -> Tensor:
        """One step more than the others' for the own model, and one for the shared model."""
        return steps + 2

    def initial(self, network: Network) -> Tensor:
        """The initial model and the first share."""
        return torch.cat([network.initial, network.initial.new_tensor(self.alphas[:1])])

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """The interpolated models."""
        return mixture(rows[:, -1:], rows[:, :-1], shared)

    def train(self, stack: StackedClients, rows: Tensor) -> Tensor:
        """Own model by ``u <- u - eta alpha g``; the best share; ``w <- w - eta (1 - alpha) g``; g at the mixture."""
        shared = stack.received
        batches = stack.batches(self.draws(stack.steps))
        of_shared = next(batches)
        tried = [rows[:, :-1].clone() for _ in self.alphas]
        for batch in batches:
            for alpha, models in zip(self.alphas, tried, strict=True):
                own = models[: len(batch)]
                gradient = stack.gradient(mixture(alpha, own, shared), batch, ROLE)
                stack.descend(own, gradient, stack.personal_rate * alpha, alpha)
        mixed = torch.stack([mixture(alpha, own, shared) for alpha, own in zip(self.alphas, tried, strict=True)])
        best = stack.training.mean_losses("train", stack.clients, mixed).argmin(0)
        rows[:, :-1] = torch.stack(tried)[best, torch.arange(len(rows))]
        rows[:, -1] = rows.new_tensor(self.alphas)[best]
        share = rows[:, -1:]
        gradient = stack.gradient(mixture(share, rows[:, :-1], shared), of_shared, ROLE)
        return gradient.mul_(share - 1).mul_(stack.learning_rate)

    def follow_up(self) -> PostHocPersonalizer:
        """Fine-tuning of the interpolated models."""
        return TunedMapper(epochs=self.epochs)
