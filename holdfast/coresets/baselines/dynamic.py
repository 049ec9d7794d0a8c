"""Dynamic pruning without bias: every epoch leaves some of the easy examples out and weighs the others up.

In the manner of InfoBatch (Qin et al. 2024, https://arxiv.org/abs/2303.04947). Examples whose last loss is below the
mean are easy. A share of them, chosen at random anew for each epoch, is left out, and those that stay are weighed up by
what they stand for, so that the weighted loss of an epoch is, in the mean over draws, that of all examples. The last
epochs train on everything. Losses are those of the training steps themselves, so it costs no forward pass.

An epoch has fewer steps then. Weights have mean one, as everywhere here, so the steps would be no longer and an epoch
would lead less far; with `full_epochs` the learning rate is raised by as much as the epoch is shorter, which for SGD is
what the paper's weights, whose mean is above one, amount to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.training.clock import Clock
from holdfast.training.objective import CrossEntropy, Forward
from holdfast.training.options import check_kinds
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, PlannedTraining, Policy, ScaleLearningRate


@dataclass(kw_only=True)
class DynamicPruning(Policy):
    """Leaves easy examples out at random, without bias.

    Attributes:
        ratio: of the easy examples, the share that an epoch leaves out.
        easiest: the share of all examples that counts as easy, by their last losses; by default those below the mean.
        anneal: the last share of the epochs, which trains on everything. In a loop that doesn't say how many epochs it
            has (`Curator.steps`) there is none.
        full_epochs: raise the learning rate by as much as an epoch is shorter.
    """

    name: ClassVar[str] = "dynamic-pruning"

    ratio: float = 0.5
    easiest: float | None = None
    anneal: float = 0.125
    full_epochs: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        if not 0 <= self.ratio < 1:
            raise ConfigError(f"ratio of {self.name} is {self.ratio}; give a number from 0, below 1")
        if self.easiest is not None and not 0 < self.easiest <= 1:
            raise ConfigError(f"easiest of {self.name} is {self.easiest}; give a number above 0, at most 1")
        if not 0 <= self.anneal <= 1:
            raise ConfigError(f"anneal of {self.name} is {self.anneal}; give a number from 0 to 1")
        self._epochs: int | None = None
        self._losses: Tensor
        self._forget(0)

    def validate(self, planned: PlannedTraining) -> None:
        """Learn when the last epochs begin."""
        self._epochs = planned.epochs

    def due(self, clock: Clock) -> bool:
        """At the start of every epoch."""
        return clock.starts_epoch

    def objective(self) -> CrossEntropy:
        """The cross-entropy, whose losses are written down on the way."""
        return RecordingCrossEntropy(self)

    def record(self, positions: Tensor, losses: Tensor) -> None:
        """Write down losses of a training step; `fit` does it by itself, a loop of your own may.

        Args:
            positions: of the examples, int64.
            losses: theirs, before any weights.
        """
        places = positions.cpu()
        # Of several processes only the main one is asked for a plan, so the others learn the size of the set here.
        if (missing := int(places.max()) + 1 - len(self._losses)) > 0:
            self._losses = torch.cat([self._losses, torch.full((missing,), torch.inf)])
        self._losses[places] = losses.detach().to("cpu", torch.float32)
        self._recorded = True

    def update(self, context: Context) -> Plan:
        """What the next epoch trains on."""
        n, clock = len(context.examples), context.clock
        if clock.starts_stage:
            self._forget(n)
            return Plan()
        if self._epochs is not None and clock.stage_epoch >= math.ceil((1 - self.anneal) * self._epochs):
            self._scale_rate(context, 1.0)
            return Plan()
        pool = context.active_positions()
        if not self._recorded:  # a loop that keeps its losses to itself: look
            self._losses[pool] = context.outputs.losses(pool).float()
        self._recorded = False
        easy = pool[easy_examples(self._losses[pool], self.easiest)]
        dropped = easy[torch.randperm(len(easy), generator=context.stream("pruned"))[: round(self.ratio * len(easy))]]
        if not len(dropped):
            self._scale_rate(context, 1.0)
            return Plan()
        kept, weight = torch.ones(n, dtype=torch.bool), torch.ones(n)
        weight[easy] = len(easy) / (len(easy) - len(dropped))
        kept[dropped] = False
        self._scale_rate(context, len(pool) / (len(pool) - len(dropped)))
        return Plan(copies=kept, loss_weight=weight)

    def state_dict(self) -> dict[str, Any]:
        """The losses, and by how much the rate is raised."""
        return {"losses": self._losses, "recorded": self._recorded, "scale": self._scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._losses, self._recorded, self._scale = state["losses"], state["recorded"], state["scale"]

    def _forget(self, n: int) -> None:
        self._losses = torch.full((n,), torch.inf)  # never trained on: not easy
        self._recorded, self._scale = False, 1.0

    def _scale_rate(self, context: Context, scale: float) -> None:
        if self.full_epochs and scale != self._scale:
            context.request(ScaleLearningRate(scale / self._scale))
            self._scale = scale


def easy_examples(losses: Tensor, easiest: float | None) -> Tensor:
    """Places of the examples with the smallest losses, int64: a share of them, or those below the mean of all."""
    if easiest is not None:
        return losses.argsort(stable=True)[: int(easiest * len(losses))]
    seen = losses[losses.isfinite()]
    return (losses < seen.mean()).nonzero().flatten() if len(seen) else torch.zeros(0, dtype=torch.int64)


class RecordingCrossEntropy(CrossEntropy):
    """The weighted cross-entropy; every loss is handed to a policy that goes by it.

    Args:
        policy: which is told.
    """

    # A mean, but of losses that the process which decides must have, the other processes' too.
    is_mean: ClassVar[bool] = False

    def __init__(self, policy: DynamicPruning) -> None:
        super().__init__()
        self._policy = policy

    def __call__(self, forward: Forward) -> Tensor:
        """mean(weight x loss) over the batch."""
        losses = forward.losses
        self._policy.record(forward.batch.positions, losses)
        return super().__call__(forward) if forward.weighted else losses.mean()
