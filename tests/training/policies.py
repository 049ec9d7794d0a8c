"""Stand-ins with the shapes of the methods to come: what each of them does to a plan, without its mathematics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.training import Clock, Context, Plan, Policy, ResetOptimizer, Restart, ScaleLearningRate


@dataclass
class DropHighest(Policy):
    """Like EPIC: every few epochs drop for good, by the residuals of one outputs."""

    name: ClassVar[str] = "drop-highest"
    every: int = 1
    count: int = 3
    start: int = 1
    _kept: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))

    def due(self, clock: Clock) -> bool:
        return clock.starts_epoch and clock.epoch >= self.start and clock.epoch % self.every == 0

    def update(self, context: Context) -> Plan:
        kept = self._kept.clone() if len(self._kept) else torch.ones(len(context.examples), dtype=torch.bool)
        norms = torch.where(kept, context.outputs.residuals().norm(dim=1), -1)
        kept[norms.topk(self.count).indices] = False
        self._kept = kept
        return Plan(copies=kept)

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self._kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._kept = state["kept"]


@dataclass
class FixedBatches(Policy):
    """Like CREST: weighted mini-batches chosen inside what is active, again every few steps, by random subsets."""

    name: ClassVar[str] = "fixed-batches"
    acts_between_steps: ClassVar[bool] = True
    every: int = 3
    count: int = 2
    size: int = 5

    def due(self, clock: Clock) -> bool:
        return clock.step % self.every == 0

    def update(self, context: Context) -> Plan:
        pool = context.active_positions()
        rows = [
            pool[torch.randperm(len(pool), generator=context.stream("subset", b))[: self.size]]
            for b in range(self.count)
        ]
        batches = torch.stack(rows)
        weight = context.outputs.losses(batches.flatten()).reshape(batches.shape)
        return Plan(batches=batches, batch_weight=weight / weight.mean(1, keepdim=True))


@dataclass
class TwoStages(Policy):
    """Like JTT: train a little, repeat what is misclassified, start again."""

    name: ClassVar[str] = "two-stages"
    first: int = 1
    times: int = 4

    @property
    def warmup_epochs(self) -> int:
        return self.first

    def due(self, clock: Clock) -> bool:
        return clock.stage == 0 and clock.starts_epoch and clock.stage_epoch == self.first

    def update(self, context: Context) -> Plan:
        wrong = context.outputs.predictions() != context.examples.labels
        context.request(Restart())
        return Plan(copies=torch.where(wrong, self.times, 1))


@dataclass
class Growing(Policy):
    """Like PDE: a small set first, then a few more examples every epoch, at a lower learning rate."""

    name: ClassVar[str] = "growing"
    first: int = 8
    step: int = 4
    after: int = 2
    reset: bool = False

    def due(self, clock: Clock) -> bool:
        return clock.starts_epoch and (clock.epoch == 0 or clock.epoch >= self.after)

    def update(self, context: Context) -> Plan:
        rounds = max(0, context.clock.epoch - self.after + 1)
        if context.clock.epoch == self.after:
            context.request(ScaleLearningRate(0.1))
            if self.reset:
                context.request(ResetOptimizer())
        mask = torch.zeros(len(context.examples), dtype=torch.bool)
        mask[: self.first + rounds * self.step] = True
        return Plan(copies=mask)


@dataclass
class LossWeights(Policy):
    """Weigh examples by their position."""

    name: ClassVar[str] = "loss-weights"

    def update(self, context: Context) -> Plan:
        return Plan(loss_weight=1.0 + torch.arange(len(context.examples)) % 3)
