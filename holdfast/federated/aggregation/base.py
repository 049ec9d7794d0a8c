"""What an aggregation rule is: a function of the updates of a round, and the number of attackers it can stand.

A rule is a frozen dataclass, so its fields are its options on the command line. Its `check` knows the rule's breakdown
point: the engine calls it before the first round instead of averaging nonsense for hours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.federated.aggregation.sums import weighted_sum


@dataclass(frozen=True)
class Aggregator(ABC):
    """A rule that turns the updates of a round into the server's step.

    Updates are finite: the engine drops others before. Rows are in the order of client ids, which settles ties.
    """

    name: ClassVar[str]

    @abstractmethod
    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:
        """The server's step.

        Args:
            updates: what the clients sent, shape (m, parameters).
            f: how many of them the server expects to be malicious.
            losses: training loss of each client at the model it received, shape (m,), where `needs_losses`.

        Returns:
            Shape (parameters,), in the dtype of the updates.
        """

    @property
    def label(self) -> str:
        """How a command line names this rule."""
        return self.name

    @property
    def needs_losses(self) -> bool:
        """Whether clients must report their loss."""
        return False

    @property
    def averages(self) -> bool:
        """Whether the rule is a plain mean, perhaps of prepared updates; only then can an objective weigh clients."""
        return False

    def prepare(self, updates: Tensor) -> Tensor:
        """The updates after the steps that come before any weighing, such as clipping; shape (m, parameters)."""
        return updates

    def check(self, m: int, f: int) -> list[str]:
        """What to say about `m` updates of which `f` are malicious, before training starts.

        Args:
            m: clients per round.
            f: how many of them the server expects to be malicious.

        Returns:
            Sentences to log where the rule works but promises nothing.

        Raises:
            ConfigError: where the rule is not defined.
        """
        if not 0 <= f <= m or m < 1:
            raise ConfigError(f"{self.label} got {f} attackers among {m} clients per round; give from 0 to all of them")
        return []


@dataclass(frozen=True)
class Mean(Aggregator):
    """The unweighted mean (FedAvg); a single attacker can move it anywhere."""

    name: ClassVar[str] = "mean"

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return mean(updates)

    @property
    def averages(self) -> bool:
        """It is the mean."""
        return True


@dataclass(frozen=True)
class PreStep(Aggregator):
    """A step that changes updates and leaves their number alone; by itself it is followed by the mean.

    It goes before another rule by ``>>``, such as ``Clipping() >> Krum()``.
    """

    @abstractmethod
    def prepare(self, updates: Tensor) -> Tensor:
        """The changed updates, shape (m, parameters)."""

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return mean(self.prepare(updates))

    def __rshift__(self, then: Aggregator) -> WithPreStep:
        return WithPreStep(self, then)

    @property
    def averages(self) -> bool:
        """The mean follows."""
        return True


@dataclass(frozen=True)
class WithPreStep(Aggregator):
    """A pre-step, then any other rule.

    Attributes:
        first: what is done to the updates.
        then: what combines them.
    """

    name: ClassVar[str] = "chain"

    first: PreStep
    then: Aggregator

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return self.then(self.first.prepare(updates), f=f, losses=losses)

    @property
    def label(self) -> str:
        """Both names, joined."""
        return f"{self.first.label}+{self.then.label}"

    @property
    def needs_losses(self) -> bool:
        """Whether the rule at the end does."""
        return self.then.needs_losses

    @property
    def averages(self) -> bool:
        """Whether the rule at the end is a mean."""
        return self.then.averages

    def prepare(self, updates: Tensor) -> Tensor:
        """All pre-steps, one after another."""
        return self.then.prepare(self.first.prepare(updates))

    def check(self, m: int, f: int) -> list[str]:
        """What both have to say."""
        return self.first.check(m, f) + self.then.check(m, f)


def mean(updates: Tensor) -> Tensor:
    """The unweighted mean of updates (m, parameters), accumulated in float64."""
    return weighted_sum(updates, torch.full((len(updates),), 1 / len(updates), dtype=torch.float64))


def reported(losses: Tensor | None, m: int) -> Tensor:
    """The losses that `m` clients reported, float64 of shape (m,).

    Raises:
        DataError: if there is none, or not one finite number per update.
    """
    if losses is None or losses.shape != (m,) or not bool(losses.isfinite().all()):
        given = "none" if losses is None else f"{losses.tolist()}"
        raise DataError(f"the rule needs one finite loss for each of {m} updates and got {given}; report the losses")
    return losses.double()
