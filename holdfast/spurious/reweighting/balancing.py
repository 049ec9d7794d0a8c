"""Balancing: every class or every group is seen equally often, by sampling or by leaving examples out.

The reference points of every group-robustness paper (CB and GB in Table 5.1, Subsample in Table 6.2 of the
dissertation, https://escholarship.org/uc/item/0399v1qw). Class balancing needs no group labels; the other two need them
for the training set. They cost nothing beyond plain training. Use group balancing when groups are known and the
smallest has at least dozens of examples; subsampling when repeating the same few examples makes the model memorise
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import DataError
from holdfast.primitives.ranks import rank_in_part
from holdfast.spurious.reweighting.health import attributes_of_classes
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy


def balance_weights(parts: Tensor) -> Tensor:
    """Sampling weights under which each part that has examples is drawn equally often.

    Args:
        parts: class or group of each example, int64 of shape (n,).

    Returns:
        float64 of shape (n,) that sums to one: 1 / (number of parts x size of the example's part).

    Example:
        >>> import torch
        >>> balance_weights(torch.tensor([0, 0, 0, 2])).tolist()
        [0.16666666666666666, 0.16666666666666666, 0.16666666666666666, 0.5]
    """
    counts = torch.bincount(parts).to(torch.float64)
    return 1 / (counts[parts] * (counts > 0).sum())


def balanced_subset(parts: Tensor, generator: torch.Generator, at_least: int = 0) -> Tensor:
    """As many examples of each part as the smallest has, drawn once without replacement.

    Args:
        parts: group of each example, int64 of shape (n,).
        generator: random stream.
        at_least: keep this many of a group, where it has them, even if the smallest group has fewer (PDE's cap of 150
            for CivilComments); 0 for the exact balance.

    Returns:
        bool of shape (n,): which examples are kept.
    """
    counts = torch.bincount(parts)
    limit = max(int(counts[counts > 0].min()), at_least)
    shuffled = torch.randperm(len(parts), generator=generator)
    keep = torch.zeros(len(parts), dtype=torch.bool)
    keep[shuffled[rank_in_part(parts[shuffled]) < limit]] = True
    return keep


@dataclass(frozen=True)
class ClassBalanced(Policy):
    """Draw every class equally often, with replacement."""

    name: ClassVar[str] = "class-balanced"

    def update(self, context: Context) -> Plan:
        """Sampling weights by class."""
        return Plan(sample_weight=_weights_of_active(context, context.examples.labels))


@dataclass(frozen=True)
class GroupBalanced(Policy):
    """Draw every group equally often, with replacement; needs training group labels."""

    name: ClassVar[str] = "group-balanced"
    promises_worst_group = True
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = "train"

    def health(self, observed: Observed) -> list[Finding]:
        """Whether every class has every attribute."""
        return attributes_of_classes(observed)

    def update(self, context: Context) -> Plan:
        """Sampling weights by group."""
        return Plan(sample_weight=_weights_of_active(context, context.require_groups()))


@dataclass(frozen=True)
class GroupWeighted(Policy):
    """Weigh every group equally in the loss, each example once per epoch; needs training group labels.

    The weight is N / (groups x group size). The expectation of the gradient is that of group
    balancing; its variance is larger, since rare examples come rarely and then push hard.
    """

    name: ClassVar[str] = "group-weighted"
    promises_worst_group = True
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = "train"

    def health(self, observed: Observed) -> list[Finding]:
        """Whether every class has every attribute."""
        return attributes_of_classes(observed)

    def update(self, context: Context) -> Plan:
        """Loss weights by group."""
        return Plan(loss_weight=_weights_of_active(context, context.require_groups()))


@dataclass(frozen=True)
class GroupSubsampled(Policy):
    """Keep as many examples of each group as the smallest has; needs training group labels.

    Attributes:
        at_least: keep this many of a group, where it has them, even if the smallest group has fewer; 0 for the exact
            balance.
    """

    name: ClassVar[str] = "group-subsampled"
    promises_worst_group = True
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = "train"

    at_least: int = 0

    def health(self, observed: Observed) -> list[Finding]:
        """Whether every class has every attribute."""
        return attributes_of_classes(observed)

    def update(self, context: Context) -> Plan:
        """A balanced subset, drawn once."""
        active = context.active_positions()
        groups = context.require_groups()[active]
        keep = torch.zeros(len(context.examples), dtype=torch.bool)
        keep[active[balanced_subset(groups, context.stream("subset"), self.at_least)]] = True
        return Plan(copies=keep)


def _weights_of_active(context: Context, parts: Tensor) -> Tensor:
    active = context.active_positions()
    if len(active) == 0:
        raise DataError("there is nothing to balance: no example is active")
    weights = torch.zeros(len(context.examples), dtype=torch.float64)
    weights[active] = balance_weights(parts[active])
    return weights
