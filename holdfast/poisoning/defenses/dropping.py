"""Simpler ways to drop examples while training goes on: by their loss, by confidence, or at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.poisoning.epic import Epic
from holdfast.poisoning.health import drops
from holdfast.poisoning.isolation import Medoids
from holdfast.training.clock import Clock
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy


@dataclass(kw_only=True)
class Dropping(Policy):
    """Drops for good what is suspicious from some epoch on. Derive and write `suspicious`.

    Attributes:
        start: epochs before the first round.
        every: epochs between rounds.
    """

    start: int = 10
    every: int = 2

    def __post_init__(self) -> None:
        if self.start < 0 or self.every < 1:
            raise ConfigError(
                f"{self.name} starts after {self.start} epochs and comes every {self.every}; give 0 and 1"
            )
        self._remaining: Tensor | None = None

    def due(self, clock: Clock) -> bool:
        """At the multiples of `every` from `start` on."""
        return clock.starts_epoch and clock.stage_epoch >= self.start and clock.stage_epoch % self.every == 0

    def suspicious(self, context: Context) -> Tensor:
        """Whom to drop, bool of shape (n,)."""
        raise NotImplementedError

    def update(self, context: Context) -> Plan:
        """Drop what is suspicious now."""
        remaining = ~self.suspicious(context)
        if self._remaining is not None:
            remaining &= self._remaining
        if not bool(remaining.any()):
            raise DataError(f"{self.name} would drop every example; loosen its threshold, or start later")
        self._remaining = remaining
        return Plan(copies=remaining)

    def health(self, observed: Observed) -> list[Finding]:
        """Whether what was dropped can be the exception, and whether it falls on one group."""
        return [] if self._remaining is None else drops(self.name, ~self._remaining, observed)

    def state_dict(self) -> dict[str, Any]:
        """Who is kept."""
        return {} if self._remaining is None else {"kept": self._remaining}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back who is kept."""
        self._remaining = state.get("kept")


@dataclass(kw_only=True)
class HighestLoss(Dropping):
    """Drops examples whose loss is above a threshold.

    Attributes:
        threshold: the loss.
    """

    name: ClassVar[str] = "highest-loss"

    threshold: float = 1.0

    def suspicious(self, context: Context) -> Tensor:
        """Losses above the threshold."""
        return context.outputs.losses() > self.threshold


@dataclass(kw_only=True)
class LowestConfidence(Dropping):
    """Drops examples of which the network is least sure, whatever it takes them for.

    Attributes:
        threshold: the largest probability.
    """

    name: ClassVar[str] = "lowest-confidence"

    threshold: float = 0.5

    def suspicious(self, context: Context) -> Tensor:
        """Largest probabilities below the threshold."""
        return context.outputs.probabilities().amax(1) < self.threshold


@dataclass(kw_only=True)
class AsManyAsEpic(Epic):
    """Drops as many examples of each class as EPIC would in the same round, but others: the control for its choice.

    What EPIC names stays, and would be named again in every round; so it counts once, as it does where it is dropped.

    Attributes:
        by: those at `random`, with the highest `loss`, or with the lowest `confidence`.
    """

    name: ClassVar[str] = "as-many-as-epic"

    by: Literal["random", "loss", "confidence"] = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._named: Tensor | None = None

    def _isolated(self, medoids: Medoids, context: Context) -> tuple[Tensor, Tensor]:
        """Others of the same classes, among those that are kept."""
        assert self._remaining is not None
        named = torch.zeros_like(self._remaining) if self._named is None else self._named.clone()
        new = medoids.isolated(self.largest) & ~named[medoids.positions]
        positions, sizes = medoids.positions[new], medoids.sizes[new]
        named[positions] = True
        self._named = named
        labels, outputs = context.examples.labels, context.outputs
        if self.by == "random":
            score = torch.rand(len(labels), generator=context.stream("instead"))
        else:
            score = outputs.losses() if self.by == "loss" else -outputs.probabilities().amax(1)
        chosen = list[Tensor]()
        for label, count in zip(*torch.unique(labels[positions], return_counts=True), strict=True):
            members = (self._remaining & (labels == label)).nonzero().flatten()
            chosen.append(members[score[members].argsort(descending=True, stable=True)[: int(count)]])
        return torch.cat([positions[:0], *chosen]), sizes

    def state_dict(self) -> dict[str, Any]:
        """EPIC's state, and whom it has named."""
        return super().state_dict() | ({} if self._named is None else {"named": self._named})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back EPIC's state, and whom it has named."""
        super().load_state_dict(state)
        self._named = state.get("named")
