"""Train once, filter by what the network makes of its data, train again: three published defences as policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.poisoning.defenses.filters import activation_keeps, deep_knn_keeps, spectral_keeps
from holdfast.poisoning.health import drops
from holdfast.training.clock import Clock
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy, Restart


@dataclass(kw_only=True)
class Filtering(Policy):
    """Keeps what a filter keeps after a first training. Derive and write `keeps`.

    Attributes:
        filter_epochs: epochs of the first training, on top of the budget.
        expected: share of the training set that is taken to be poisoned.
    """

    needs_features: ClassVar[bool] = True

    filter_epochs: int = 40
    expected: float = 0.01

    def __post_init__(self) -> None:
        if self.filter_epochs < 1 or not 0 < self.expected < 1:
            raise ConfigError(
                f"{self.name} filters after {self.filter_epochs} epochs and expects a share of {self.expected}; give "
                "at least 1, and a number between 0 and 1"
            )

    @property
    def warmup_epochs(self) -> int:
        """The first training."""
        return self.filter_epochs

    def due(self, clock: Clock) -> bool:
        """Once, after the first training."""
        return clock.stage == 0 and clock.starts_epoch and clock.stage_epoch == self.filter_epochs

    def keeps(self, features: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Whom to keep, bool of shape (n,)."""
        raise NotImplementedError

    def update(self, context: Context) -> Plan:
        """Filter, and start again."""
        pool = context.active_positions()
        keep = self.keeps(context.outputs.features(pool), context.examples.labels[pool], context.seed)
        if not bool(keep.any()):
            raise DataError(f"{self.name} would remove every example; use another defence for this data")
        copies = torch.zeros(len(context.examples), dtype=torch.bool)
        copies[pool[keep]] = True
        context.request(Restart())
        return Plan(copies=copies)

    def health(self, observed: Observed) -> list[Finding]:
        """Whether what was removed can be the exception, and whether it falls on one group."""
        active = observed.plan.active
        return [] if active is None else drops(self.name, ~active, observed)

    def _poisons(self, n: int) -> float:
        return self.expected * n


@dataclass(kw_only=True)
class DeepKnn(Filtering):
    """Removes examples whose neighbours in feature space have other labels."""

    name: ClassVar[str] = "deep-knn"

    def keeps(self, features: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Asks twice as many neighbours as there may be poisons."""
        return deep_knn_keeps(features, labels, max(1, int(2 * self._poisons(len(labels)))))


@dataclass(kw_only=True)
class SpectralSignatures(Filtering):
    """Removes the examples of each class that lie farthest along its main direction in feature space."""

    name: ClassVar[str] = "spectral-signatures"

    def keeps(self, features: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Removes one and a half times as many as there may be poisons, from every class."""
        return spectral_keeps(features, labels, int(1.5 * self._poisons(len(labels))))


@dataclass(kw_only=True)
class ActivationClustering(Filtering):
    """Removes the smaller half of each class's features."""

    name: ClassVar[str] = "activation-clustering"

    def keeps(self, features: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Splits every class in two."""
        return activation_keeps(features, labels, seed=seed)
