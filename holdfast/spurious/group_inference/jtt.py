"""JTT (Just Train Twice): train briefly, repeat what was misclassified, train again from the start.

Liu et al. 2021 (https://arxiv.org/abs/2107.09044), Algorithm 1; a baseline of SPARE and PDE. It needs no training group
labels, but a first stage that is stopped while the minority is still wrong. The published infer_epoch and lambda_up are
60 and 100 for Waterbirds, 1 and 50 for CelebA, 2 and 6 for CivilComments. Examples are repeated `lambda_up` times, as
the paper says; the released code has the originals in addition, one copy more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.spurious.group_inference.base import GroupInference, spread_over
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


@dataclass(kw_only=True)
class Jtt(GroupInference):
    """Train twice: the second time, what the first model got wrong comes many times; needs no group labels.

    Its groups, for other methods, are right and wrong in each class.

    Attributes:
        infer_epoch: epochs of the first stage (T), on top of the budget.
        lambda_up: copies of each misclassified example in the second stage.
    """

    name: ClassVar[str] = "jtt"

    lambda_up: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.infer_epoch < 1:
            raise ConfigError(f"infer_epoch of jtt is {self.infer_epoch}; give at least 1 epoch")
        if self.lambda_up < 2:
            raise ConfigError(f"lambda_up of jtt is {self.lambda_up}; give at least 2, or use erm")

    def infer(self, context: Context) -> Tensor:
        """Twice the class, plus one where the first stage is wrong."""
        active = context.active_positions()
        labels = context.examples.labels[active]
        wrong = misclassified(context.outputs.predictions(active), labels)
        return spread_over(active, 2 * labels + wrong, len(context.examples))

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Repeat what is misclassified."""
        return Plan(copies=torch.where(groups % 2 == 1, self.lambda_up, 1))
