"""One weighted subset of the training set, chosen again every so many epochs: what CRAIG, GradMatch and Glister share.

An epoch is one shuffled pass over the subset, so a fraction of 0.1 makes training ten times as short at equal epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.coresets.accounting import Accounts
from holdfast.coresets.crest.mini_batches import quotas
from holdfast.errors import ConfigError
from holdfast.training.clock import Clock
from holdfast.training.options import check_kinds
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy, Record


@dataclass(kw_only=True)
class SubsetPolicy(Policy):
    """Trains on a subset. Derive and write `choose`.

    Attributes:
        fraction: of the examples to train on.
        every: choose again after so many epochs.
        start: epochs on random subsets before the first choice. A network with batch norm that has seen nothing takes
            all images for one class; by its gradients one example stands for nearly all others, and its weight blows up
            the training.
    """

    fraction: float = 0.1
    every: int = 1
    start: int = 0

    def __post_init__(self) -> None:
        check_kinds(self)
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction of {self.name} is {self.fraction}; give a number above 0, at most 1")
        if self.every < 1 or self.start < 0:
            raise ConfigError(
                f"{self.name} starts after {self.start} epochs and chooses every {self.every}; give at least 0 and 1"
            )
        self.accounts = Accounts()

    def due(self, clock: Clock) -> bool:
        """At the start of every epoch before `start`, and of every so many from then on."""
        late = clock.stage_epoch - self.start
        return clock.starts_epoch and (late < 0 or late % self.every == 0)

    def choose(self, context: Context, pool: Tensor, size: int) -> tuple[Tensor, Tensor | None]:
        """Choose from a pool.

        Args:
            context: the model and the data.
            pool: positions to choose from, int64.
            size: how many.

        Returns:
            Positions, int64, and their loss weights, or None where all weigh the same.
        """
        raise NotImplementedError

    def update(self, context: Context) -> Plan:
        """The subset from now on."""
        if context.clock.starts_run:
            self.accounts = Accounts()
        pool = context.active_positions()
        size = subset_size(self.fraction, len(pool))
        if context.clock.stage_epoch < self.start:
            drawn = torch.randperm(len(pool), generator=context.stream("random subset"))[:size]
            return subset_plan(len(context.examples), pool[drawn])
        before = context.outputs.forwarded
        with self.accounts.timed("choose"):
            chosen, weights = self.choose(context, pool, size)
        self.accounts.forward += context.outputs.forwarded - before
        self.accounts.selections.append({"step": context.clock.step, "chosen": len(chosen)})
        return subset_plan(len(context.examples), chosen, weights)

    def save_artifacts(self, folder: Path) -> None:
        """When it chose and what that cost, as ``NAME.json``."""
        self.accounts.save(folder, self.name)

    def state_dict(self) -> dict[str, Any]:
        """The accounts."""
        return {"accounts": self.accounts.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the accounts."""
        self.accounts = Accounts.of_state(state["accounts"])

    def new_records(self) -> list[Record]:
        """The choices since last asked."""
        return self.accounts.new_records()

    def recall(self, records: list[Record]) -> None:
        """Take back the choices."""
        self.accounts.recall(records)


def subset_size(fraction: float, n: int) -> int:
    """How many examples a fraction is: one at least."""
    return max(1, round(fraction * n))


def subset_plan(n: int, chosen: Tensor, weights: Tensor | None = None) -> Plan:
    """Train on the chosen examples alone, with weights where they are given."""
    copies = torch.zeros(n, dtype=torch.bool)
    copies[chosen] = True
    if weights is None:
        return Plan(copies=copies)
    loss_weight = torch.zeros(n)
    loss_weight[chosen] = weights.to(torch.float32)
    return Plan(copies=copies, loss_weight=loss_weight)


def class_parts(labels: Tensor, pool: Tensor, size: int) -> list[tuple[int, Tensor, int]]:
    """The classes that get a part of the budget, in proportion to what the pool has of them.

    Args:
        labels: class of each example of the whole set.
        pool: positions to choose from.
        size: the budget.

    Returns:
        Class, positions of its examples in the pool, and how many to choose of them.

    Raises:
        ConfigError: if the budget does not suffice for one of every class.
    """
    here = labels[pool]
    counts = torch.bincount(here)
    if (classes := int(counts.count_nonzero())) > size:
        raise ConfigError(
            f"{size} of {len(pool)} examples are to be kept and there are {classes} classes; give a fraction of at "
            f"least {classes / len(pool):.2g}, so that none is lost"
        )
    shares = quotas(counts, size)
    return [(label, pool[here == label], share) for label, share in enumerate(shares) if share]
