"""JTT (Just Train Twice): train briefly, repeat what was misclassified, train again from the start.

Liu et al. 2021, algorithm 1; SPARE spec 2.7 and PDE spec 2.6 list it as a baseline. It needs no training group labels,
but a first stage that is stopped while the minority is still wrong. The published (first, lambda_up): (60, 100) for
Waterbirds, (1, 50) for CelebA, (2, 6) for CivilComments. Examples are repeated `lambda_up` times, as the paper says;
the released code has the originals in addition, one copy more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.training.clock import Clock
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy, Restart


def error_copies(predictions: Tensor, labels: Tensor, lambda_up: int) -> Tensor:
    """How often the second stage visits each example: `lambda_up` times where the first stage was wrong, else once.

    Args:
        predictions: class that the first stage predicts, int64 of shape (n,).
        labels: class of each example, int64 of shape (n,).
        lambda_up: copies of what is misclassified.

    Returns:
        int64 of shape (n,).

    Raises:
        ConfigError: if none or all are misclassified, since the second stage would then be plain training.

    Example:
        >>> import torch
        >>> error_copies(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), 20).tolist()
        [1, 1, 20]
    """
    wrong = predictions != labels
    if not bool(wrong.any()):
        raise ConfigError(
            "jtt's first stage misclassifies no training example, so there is nothing to repeat; "
            "lower `first`, or regularise more with weight_decay"
        )
    if bool(wrong.all()):
        raise ConfigError(
            "jtt's first stage misclassifies every training example, so repeating them changes nothing; "
            "raise `first`, or check the learning rate and the labels"
        )
    return torch.where(wrong, lambda_up, 1)


@dataclass(frozen=True)
class Jtt(Policy):
    """Train twice: the second time, what the first model got wrong comes many times; needs no group labels.

    Attributes:
        first: epochs of the first stage (T), on top of the budget.
        lambda_up: copies of each misclassified example in the second stage.
    """

    name: ClassVar[str] = "jtt"

    first: int = 1
    lambda_up: int = 50

    def __post_init__(self) -> None:
        if self.first < 1:
            raise ConfigError(f"first of jtt is {self.first}; give at least 1 epoch")
        if self.lambda_up < 2:
            raise ConfigError(f"lambda_up of jtt is {self.lambda_up}; give at least 2, or use erm")

    @property
    def warmup_epochs(self) -> int:
        """The first stage."""
        return self.first

    def due(self, clock: Clock) -> bool:
        """Once, when the first stage is over."""
        return clock.starts_epoch and clock.epoch == self.first

    def update(self, context: Context) -> Plan:
        """Repeat what is misclassified and start again."""
        active = context.active_positions()
        copies = torch.ones(len(context.examples), dtype=torch.int64)
        predictions = context.outputs.predictions(active)
        copies[active] = error_copies(predictions, context.examples.labels[active], self.lambda_up)
        context.request(Restart())
        return Plan(copies=copies)
