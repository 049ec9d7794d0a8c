"""What a model is trained for and scored by: classes, a margin, numbers, or a loss of the user's own.

A criterion treats examples one by one. That is what lets clients' batches be padded and put together: a padded example
has weight zero, and nobody else's loss depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from holdfast.data.clients.clients import Task
from holdfast.errors import ConfigError

#: Outputs (n, ...) and targets (n, ...) to a number per example (n,).
PerExample = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Criterion:
    """How outputs are turned into losses and scores.

    Attributes:
        losses: of each example, outputs (n, ...) and targets (n, ...) to (n,); what training lowers.
        scores: of each example, of the same shapes; what is reported, as its mean over a client's examples.
        measure: what the score is called in reports.
        higher_is_better: whether a high score is a good one.
        cross_entropy: whether the loss is that of classes, for which torch has a faster mean.
        squared_error: whether scores are squared errors of numbers.
    """

    losses: PerExample
    scores: PerExample
    measure: str
    higher_is_better: bool = True
    cross_entropy: bool = False
    squared_error: bool = False

    @property
    def is_accuracy(self) -> bool:
        """Whether scores count examples that are told right."""
        return self.measure == ACCURACY


#: What scores of classes and of margins are called.
ACCURACY = "accuracy"


def criterion_for(task: Task, loss: PerExample | None = None, score: PerExample | None = None) -> Criterion:
    """The criterion of a task.

    Args:
        task: ``classes``, ``margin`` or ``regression``.
        loss: the user's own, in place of the task's.
        score: the user's own, higher is better. With a loss and no score, clients are scored by the loss.
    """
    usual = _USUAL[task]
    if loss is None:
        return usual if score is None else Criterion(usual.losses, _checked(score, "score"), "score")
    own = _checked(loss, "loss")
    if score is None:
        return Criterion(own, own, "loss", higher_is_better=False)
    return Criterion(own, _checked(score, "score"), "score")


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _told_right(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(-1) == targets


def _hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.relu(1 - (2 * targets - 1) * outputs.squeeze(-1))


def _right_side(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(-1) > 0).long() == targets


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the numbers of an example; outputs (n, 1) are the same as (n,)."""
    if outputs.ndim == targets.ndim + 1 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    if outputs.shape != targets.shape:
        raise ConfigError(
            f"an example has outputs of shape {tuple(outputs.shape[1:])} and targets of {tuple(targets.shape[1:])}; "
            "give the model as many outputs as there are targets"
        )
    squares = (outputs - targets).square()
    return squares if squares.ndim == 1 else squares.flatten(1).mean(1)


_USUAL = {
    "classes": Criterion(_cross_entropy, _told_right, ACCURACY, cross_entropy=True),
    "margin": Criterion(_hinge, _right_side, ACCURACY),
    "regression": Criterion(
        _squared_error, _squared_error, "mean squared error", higher_is_better=False, squared_error=True
    ),
}


def _checked(function: PerExample, what: str) -> PerExample:
    def per_example(outputs: Tensor, targets: Tensor) -> Tensor:
        values = function(outputs, targets)
        if values.shape != targets.shape[:1]:
            raise ConfigError(
                f"the {what} function gave shape {tuple(values.shape)} for {len(targets)} examples; return a number "
                "for each, for instance with reduction='none'"
            )
        return values

    return per_example
