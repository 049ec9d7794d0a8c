"""APFL: the personal model is a mixture of a model of the client's own and the shared one (Deng et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import ROLE, AlongsidePersonalizer


@dataclass(frozen=True)
class Apfl(AlongsidePersonalizer):
    """Mixes a model v of the client's own with the shared one: ``alpha v + (1 - alpha) w``.

    A client's row is v and, behind it, its alpha. The mixture is made anew at each step, from the client's copy of the
    shared model as it then is, so nothing stale is carried from the client's last round into this one.

    Attributes:
        alpha: share of the client's own model.
        adaptive: whether each client learns its alpha, from this one on.
    """

    name: ClassVar[str] = "apfl"
    keeps_statistics: ClassVar[bool] = False
    alpha: float = 0.5
    adaptive: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"APFL's alpha is {self.alpha}; give a number from 0 to 1")

    @property
    def label(self) -> str:
        """The name with alpha, so that several can be compared in one run."""
        return f"{self.name}-{self.alpha:g}" + ("-adaptive" if self.adaptive else "")

    def initial(self, network: Network) -> Tensor:
        """The initial model and the first alpha."""
        return torch.cat([network.initial, network.initial.new_tensor([self.alpha])])

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """The mixtures with the shared model."""
        return mixture(rows[:, -1:], rows[:, :-1], shared)

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """``v <- v - eta alpha g``, and ``alpha <- clip(alpha - eta <g, v - w>)``, with g at the mixture."""
        own, alpha = rows[:, :-1], rows[:, -1:]
        gradient = stack.gradient(mixture(alpha, own, local), batch, ROLE)
        slope = (gradient * (own - local)).sum(1, keepdim=True) if self.adaptive else None
        stack.descend(own, alpha * gradient, stack.personal_rate)
        if slope is not None:
            alpha.sub_(slope, alpha=stack.personal_rate).clamp_(0, 1)


def mixture(alpha: Tensor | float, own: Tensor, shared: Tensor) -> Tensor:
    """``alpha v + (1 - alpha) w``, shape (clients, P)."""
    return alpha * own + (1 - alpha) * shared
