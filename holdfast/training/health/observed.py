"""What checks look at: the training set, what was planned, and, once training is over, what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.training.plan import Plan

if TYPE_CHECKING:
    from holdfast.training.evaluation.group_report import GroupReport


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came out of a training.

    Attributes:
        test: the chosen model on the test set.
        validation: the chosen model on the validation set.
        best_epoch: the chosen epoch, from 0, warm-up included.
        history: a record per epoch, as `FitResult.history`.
        select_by: the criterion that chose.
    """

    test: GroupReport
    validation: GroupReport
    best_epoch: int
    history: Sequence[Mapping[str, Any]]
    select_by: str

    @property
    def chosen_stage_epoch(self) -> int:
        """The chosen epoch, counted from where training last started."""
        last = self.history[-1]["stage"]
        first = min(int(record["epoch"]) for record in self.history if record["stage"] == last)
        return self.best_epoch - first


@dataclass(frozen=True, eq=False)
class Observed:
    """What a run has observed so far.

    Attributes:
        examples: the training set; its attributes are for judging only.
        plan: what is trained on.
        outcome: None while training goes on.
        batch_size: examples of an optimizer step.
    """

    examples: Examples
    plan: Plan
    outcome: Outcome | None = None
    batch_size: int = 32

    @property
    def attributes(self) -> Tensor | None:
        """What distinguishes the true groups of a class, where it is known."""
        return self.examples.attributes if self.examples.attributes is not None else self.examples.groups
