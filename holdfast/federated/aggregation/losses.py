"""Rules that use the losses clients report: k-loss, TERM's tilted mean and q-FedAvg's step.

The last two are fair: they weigh clients with a high loss more. Poisoned clients have a high loss, so fairness alone
makes an attack worse (Ditto, Section 4). k-loss goes the other way and trusts the highest loss that is left after the
f highest are discarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation.base import Aggregator, reported
from holdfast.federated.aggregation.sums import update_norms, weighted_sum


def tilted_weights(losses: Tensor, t: float) -> Tensor:
    """TERM's weights, softmax(t x losses); at t = 0 all are equal.

    Args:
        losses: shape (m,).
        t: the tilt; large values leave the worst client only.

    Returns:
        float64 of shape (m,) that sums to one.
    """
    return torch.softmax(t * losses.double(), 0)


def tilted_risk(losses: Tensor, t: float) -> float:
    """TERM's objective, (1 / t) log mean exp(t x losses); at t = 0 the mean loss."""
    values = losses.double()
    if t == 0:
        return float(values.mean())
    return float((torch.logsumexp(t * values, 0) - torch.tensor(float(len(values))).double().log()) / t)


def q_fair_weights(updates: Tensor, losses: Tensor, q: float, learning_rate: float) -> Tensor:
    """The weights by which q-FedAvg adds up updates (Li et al., 2020, Algorithm 2).

    With L = 1 / learning rate and delta_k = -L x update_k, the step is minus the sum of F_k^q delta_k, divided by the
    sum of h_k = q F_k^(q - 1) |delta_k|^2 + L F_k^q.

    Args:
        updates: shape (m, parameters).
        losses: shape (m,), not negative.
        q: 0 is the mean; larger values favour clients with a high loss.
        learning_rate: the one the clients' steps were taken with.

    Returns:
        float64 of shape (m,); at q = 0 each is 1 / m.
    """
    lipschitz = 1 / learning_rate
    shifted = losses.double() + 1e-10
    weighed = lipschitz * shifted**q
    curvature = q * shifted ** (q - 1) * (lipschitz * update_norms(updates)) ** 2 + weighed
    return weighed / curvature.sum()


@dataclass(frozen=True)
class KLoss(Aggregator):
    """The one update whose loss is the highest after the `f` highest losses are discarded (Ditto, Section 4)."""

    name: ClassVar[str] = "k-loss"

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        order = reported(losses, len(updates)).argsort(descending=True, stable=True)
        return updates[order[f]].clone()

    @property
    def needs_losses(self) -> bool:
        """It does."""
        return True

    @property
    def needs_f(self) -> bool:
        """Without a number it takes the highest loss of all."""
        return True

    def check(self, m: int, f: int) -> list[str]:
        """Something must be left."""
        super().check(m, f)
        if f >= m:
            raise ConfigError(f"k-loss would discard all of {m} updates; expect fewer attackers than clients per round")
        return []


@dataclass(frozen=True)
class TiltedMean(Aggregator):
    """TERM's weighted mean, with weights softmax(t x losses) (Li et al., 2021).

    Attributes:
        t: the tilt; 0 is the mean.
    """

    name: ClassVar[str] = "tilted-mean"

    t: float = 1.0

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return weighted_sum(updates, tilted_weights(reported(losses, len(updates)), self.t))

    @property
    def needs_losses(self) -> bool:
        """It does."""
        return True


@dataclass(frozen=True)
class QFairMean(Aggregator):
    """The step of q-FedAvg.

    Attributes:
        q: 0 is the mean; larger values favour clients with a high loss.
        learning_rate: the one the clients' steps were taken with.
    """

    name: ClassVar[str] = "q-fair"

    q: float = 1.0
    learning_rate: float = 0.1

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        weights = q_fair_weights(updates, reported(losses, len(updates)), self.q, self.learning_rate)
        return weighted_sum(updates, weights)

    @property
    def needs_losses(self) -> bool:
        """It does."""
        return True
