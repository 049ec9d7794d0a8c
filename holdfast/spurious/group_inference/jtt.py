"""JTT (Just Train Twice): train briefly, repeat what was misclassified, train again from the start.

Liu et al. 2021 (https://arxiv.org/abs/2107.09044), Algorithm 1; a baseline of SPARE and PDE. It needs no training group
labels, but a first stage that is stopped while the minority is still wrong. The published infer_epoch and lambda_up are
60 and 100 for Waterbirds, 1 and 50 for CelebA, 2 and 6 for CivilComments. Examples are repeated `lambda_up` times, as
the paper says; the released code has the originals in addition, one copy more. Without an infer_epoch the first stage
is looked at after each epoch, and its first plausible error set is taken: that of a model that has learned what is
easy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.spurious.group_inference.base import GroupInference, spread_over
from holdfast.spurious.group_inference.health import ERROR_COUNT, FIRST_STAGE, error_set, length_of_epochs, skill
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.plan import Plan
from holdfast.training.policy import Context


def misclassified(predictions: Tensor, labels: Tensor) -> Tensor:
    """The error set: what the second stage repeats.

    Args:
        predictions: class that the first stage predicts, int64 of shape (n,).
        labels: class of each example, int64 of shape (n,).

    Returns:
        bool of shape (n,).

    Raises:
        ConfigError: if none or all are misclassified, since the second stage would then be plain training.

    Example:
        >>> import torch
        >>> misclassified(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])).tolist()
        [False, False, True]
    """
    wrong = predictions != labels
    if not bool(wrong.any()):
        raise ConfigError(
            "jtt's first stage misclassifies no training example, so there is nothing to repeat; "
            "lower `infer_epoch`, or regularise more with weight_decay"
        )
    if bool(wrong.all()):
        raise ConfigError(
            "jtt's first stage misclassifies every training example, so repeating them changes nothing; "
            "raise `infer_epoch`, or check the learning rate and the labels"
        )
    return wrong


def first_plausible(tried: Mapping[int, Tensor], labels: Tensor) -> int:
    """The first epoch after which mistakes are those of a model that has learned; else the one with most skill.

    Args:
        tried: whether each example was misclassified, bool of shape (n,), by epoch.
        labels: int64 of shape (n,).
    """
    skills = {epoch: skill(wrong, labels) for epoch, wrong in sorted(tried.items())}
    plausible = [
        epoch
        for epoch, value in skills.items()
        if FIRST_STAGE.verdict(value) == "ok" and int(tried[epoch].sum()) >= ERROR_COUNT.doubtful
    ]
    some = [epoch for epoch in skills if bool(tried[epoch].any())] or list(skills)
    return plausible[0] if plausible else max(some, key=lambda epoch: (skills[epoch], -epoch))


@dataclass(kw_only=True)
class Jtt(GroupInference):
    """Train twice: the second time, what the first model got wrong comes many times; needs no group labels.

    Its groups, for other methods, are right and wrong in each class.

    Attributes:
        infer_epoch: epochs of the first stage (T), on top of the budget; ``auto`` takes the first error set that is
            plausible: that of a model which gets six in ten right that guessing gets wrong.
        latest: epochs of the first stage with ``auto``.
        lambda_up: copies of each misclassified example in the second stage.
    """

    name: ClassVar[str] = "jtt"

    infer_epoch: int | Literal["auto"] = "auto"  # type: ignore[assignment]
    latest: int = 5
    lambda_up: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tried: dict[int, Tensor] = {}
        if self.first_epochs < 1:
            option = "latest" if self.infer_epoch == "auto" else "infer_epoch"
            raise ConfigError(f"{option} of jtt is {self.first_epochs}; give at least 1 epoch")
        if self.lambda_up < 2:
            raise ConfigError(f"lambda_up of jtt is {self.lambda_up}; give at least 2, or use erm")

    @property
    def first_epochs(self) -> int:
        """The first stage."""
        return self.latest if self.infer_epoch == "auto" else self.infer_epoch

    @property
    def tries_epochs(self) -> bool:
        """Whether an epoch is chosen."""
        return self.infer_epoch == "auto"

    def infer(self, context: Context) -> Tensor | None:
        """Twice the class, plus one where the first stage is wrong."""
        active = context.active_positions()
        labels = context.examples.labels[active]
        predictions = context.outputs.predictions(active)
        if self.tries_epochs:
            epoch = context.clock.stage_epoch
            self._tried[epoch] = predictions != labels
            if epoch < self.latest:
                return None
            wrong, self._tried = self._tried[first_plausible(self._tried, labels)], {}
            if not bool(wrong.any()) or bool(wrong.all()):
                wrong = misclassified(predictions, labels)
        else:
            wrong = misclassified(predictions, labels)
        return spread_over(active, 2 * labels + wrong, len(context.examples))

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Repeat what is misclassified."""
        return Plan(copies=torch.where(groups % 2 == 1, self.lambda_up, 1))

    def state_dict(self) -> dict[str, Any]:
        """The error sets of the epochs that were tried so far."""
        return {"tried": {str(epoch): wrong for epoch, wrong in self._tried.items()}} if self._tried else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the error sets."""
        self._tried = {int(epoch): wrong for epoch, wrong in state.get("tried", {}).items()}

    def health(self, observed: Observed) -> list[Finding]:
        """Whether the first stage had learned enough for its mistakes to mean something, and what they are."""
        if observed.plan.groups is None:
            return []
        active = observed.plan.active
        kept = torch.ones(len(observed.examples), dtype=torch.bool) if active is None else active
        wrong = observed.plan.groups[kept] % 2 == 1
        longer = 1 + (self.lambda_up - 1) * float(wrong.double().mean())
        found = [*error_set(wrong, observed.examples.labels[kept]), length_of_epochs(longer)]
        return [*found, *super().health(observed)]
