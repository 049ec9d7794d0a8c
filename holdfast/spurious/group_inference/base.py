"""Groups that nobody labelled: train plainly for a while, look at what the model makes of the examples, name groups.

SPARE, JTT, EIIL, GEORGE and SSA all begin so and differ in how they look and in what they do next. Each is a policy
that infers groups and plans from them; `InferGroups` keeps the inference and leaves the plan to any method that needs
groups: ``InferGroups(Spare()) >> Pde()``, or ``holdfast fit --method pde --groups spare``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.spurious.group_inference.health import minorities
from holdfast.training.clock import Clock
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, PlannedTraining, Policy, Record, Restart, ScaleLearningRate, SetOptimizer


@dataclass(kw_only=True)
class GroupInference(Policy):
    """Plain training, then groups and a new start. Derive, write `infer` and `plan_from_groups`.

    Attributes:
        infer_epoch: epochs of plain training before groups are inferred, on top of the budget. 0 looks at the model as
            it is given.
        first_learning_rate: of the plain training; by default the run's.
        first_weight_decay: of the plain training; by default the run's.
    """

    promises_worst_group = True
    guesses_groups = True

    infer_epoch: int = 1
    first_learning_rate: float | None = None
    first_weight_decay: float | None = None

    def __post_init__(self) -> None:
        if self.first_epochs < 0:
            raise ConfigError(f"infer_epoch of {self.name} is {self.infer_epoch}; give 0 or more epochs")
        if self.first_learning_rate is not None and not self.first_learning_rate > 0:
            raise ConfigError(
                f"first_learning_rate of {self.name} is {self.first_learning_rate}; give a positive number"
            )

    @property
    def first_epochs(self) -> int:
        """Epochs of plain training."""
        return self.infer_epoch

    @property
    def tries_epochs(self) -> bool:
        """Whether groups are inferred after every epoch of the plain training, to choose one."""
        return False

    @property
    def warmup_epochs(self) -> int:
        """The plain training."""
        return self.first_epochs

    def due(self, clock: Clock) -> bool:
        """After the plain training, or each of its epochs; and before it, where it has settings of its own."""
        if clock.stage > 0 or not clock.starts_epoch:
            return False
        if clock.starts_stage and self._has_own_first_stage:
            return True
        last = self.warmup_epochs
        return clock.stage_epoch == last or (self.tries_epochs and 0 < clock.stage_epoch < last)

    def infer(self, context: Context) -> Tensor | None:
        """Group of each example, int64 of shape (n,), anything for those that are not active; None for not yet."""
        raise NotImplementedError

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """What to train on, now that the groups are known."""
        raise NotImplementedError

    def update(self, context: Context) -> Plan:
        """Set the first stage up, or infer, start again and answer."""
        if context.clock.starts_stage and self.warmup_epochs > 0:
            self._request_first_stage(context)
            return Plan()
        groups = self.infer(context)
        if groups is None:
            return Plan()
        if self.warmup_epochs > 0:
            context.request(Restart())
        return replace(self.plan_from_groups(context, groups), groups=groups)

    def health(self, observed: Observed) -> list[Finding]:
        """What was inferred against the true attributes, where these are known."""
        groups, active = observed.plan.groups, observed.plan.active
        if groups is None or observed.attributes is None:
            return []
        kept = torch.ones(len(groups), dtype=torch.bool) if active is None else active
        return minorities(groups[kept], observed.examples.labels[kept], observed.attributes[kept])

    @property
    def _has_own_first_stage(self) -> bool:
        return self.first_learning_rate is not None or self.first_weight_decay is not None

    def _request_first_stage(self, context: Context) -> None:
        if self.first_learning_rate is not None:
            if context.learning_rate is None:
                raise ConfigError(f"{self.name} sets the learning rate of its first stage; give it the optimizer")
            context.request(ScaleLearningRate(self.first_learning_rate / context.learning_rate))
        if self.first_weight_decay is not None:
            context.request(SetOptimizer(weight_decay=self.first_weight_decay))


@dataclass
class InferGroups(Policy):
    """Infer groups as another method does, and leave it to the policies and objectives that follow to use them.

    Attributes:
        source: the method that infers.
    """

    name: ClassVar[str] = "groups"
    guesses_groups = True

    source: GroupInference

    def __post_init__(self) -> None:
        if not isinstance(self.source, GroupInference):
            raise ConfigError(f"{type(self.source).__name__} infers no groups; take Spare, Jtt, Eiil, George or Ssa")

    @property
    def warmup_epochs(self) -> int:
        """The plain training before groups are inferred."""
        return self.source.warmup_epochs

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        """Whether the source reads features."""
        return self.source.needs_features

    @property
    def needs_head(self) -> bool:
        """Whether the source needs the model's last linear layer."""
        return self.source.needs_head

    def validate(self, planned: PlannedTraining) -> None:
        """Tell the source."""
        self.source.validate(planned)

    def due(self, clock: Clock) -> bool:
        """When the source is."""
        return self.source.due(clock)

    def update(self, context: Context) -> Plan:
        """The groups alone."""
        return Plan(groups=self.source.update(context).groups)

    def health(self, observed: Observed) -> list[Finding]:
        """The source's findings."""
        return self.source.health(observed)

    def save_artifacts(self, folder: Path) -> None:
        """What the source leaves."""
        self.source.save_artifacts(folder)

    def state_dict(self) -> dict[str, Any]:
        """The source's state."""
        return self.source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the source's state."""
        self.source.load_state_dict(state)

    def new_records(self) -> list[Record]:
        """The source's."""
        return self.source.new_records()

    def recall(self, records: list[Record]) -> None:
        """Give the source its own back."""
        self.source.recall(records)


def spread_over(active: Tensor, values: Tensor, n: int) -> Tensor:
    """Values of the examples at `active`, in a vector for all `n`; the others have 0."""
    whole = torch.zeros(n, dtype=values.dtype)
    whole[active] = values
    return whole
