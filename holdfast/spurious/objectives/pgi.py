"""PGI (Predictive Group Invariance): in each class, the predictions for the two groups must agree on average.

Ahmed, Bengio, van Seijen and Courville, "Systematic Generalisation with Group Invariant Predictions" (ICLR 2021,
https://openreview.net/forum?id=b9PoimzZFJ), a baseline of SPARE: the training set is split in two early, as in EIIL;
then training starts again with CE + ramp x lam x sum_c KL(mean softmax of class c in group 0 || in group 1). Group 0 is
what the first stage gets wrong and group 1 the rest, so the divergence has the direction of the authors' code. It needs
no group labels, and a `lam` that is tuned. In the authors' code the penalty doesn't reach the last layer; here it
reaches all weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.spurious.group_inference.base import spread_over
from holdfast.spurious.group_inference.eiil import SplittingEarly
from holdfast.spurious.reweighting.balancing import balance_weights
from holdfast.training.clock import Clock
from holdfast.training.objective import CrossEntropy, Forward, NewOptimizer, Objective
from holdfast.training.plan import Plan
from holdfast.training.policy import Context


def group_divergence(logits: Tensor, labels: Tensor, sides: Tensor) -> Tensor:
    """Sum over the classes of KL(mean softmax of the class on side 0 || on side 1), in nats.

    A class that is missing on one side contributes nothing. All is computed from log-probabilities, so that a
    prediction of next to nothing has a gradient and no infinite logarithm.

    Args:
        logits: shape (b, classes).
        labels: class of each example, int64 of shape (b,).
        sides: 0 or 1, int64 of shape (b,).

    Returns:
        A scalar that can be differentiated.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()
        >>> float(group_divergence(logits, torch.tensor([0, 0]), torch.tensor([0, 1])))  # .9 log 1.8 + .1 log .2
        0.368064...
    """
    n_classes = logits.shape[1]
    cells = 2 * labels + sides
    counts = torch.bincount(cells, minlength=2 * n_classes)
    log_mean = _log_mean_by_cell(logits.log_softmax(1), cells, counts).view(n_classes, 2, n_classes)
    log_mean = log_mean[(counts > 0).view(n_classes, 2).all(1)]
    return F.kl_div(log_mean[:, 1], log_mean[:, 0], reduction="sum", log_target=True)


def _log_mean_by_cell(log_p: Tensor, cells: Tensor, counts: Tensor) -> Tensor:
    """Logarithm of the mean probabilities of each cell, shape (cells, classes); anything for one without examples."""
    rows = cells[:, None].expand_as(log_p)
    lowest = log_p.new_full((len(counts), log_p.shape[1]), torch.finfo(log_p.dtype).min)
    highest = lowest.scatter_reduce(0, rows, log_p.detach(), "amax")
    sums = torch.zeros_like(highest).index_add(0, cells, (log_p - highest[cells]).exp())
    return highest + (sums / counts.clamp(min=1)[:, None]).log()


def sides_in_class(labels: Tensor, groups: Tensor) -> Tensor:
    """Which of the two groups of its class each example is in: 0 for the lower number, 1 for the higher.

    Args:
        labels: class of each example, int64 of shape (n,).
        groups: group of each example, int64 of shape (n,), at most two different ones in a class.

    Returns:
        int64 of shape (n,).

    Raises:
        DataError: if a class has more than two groups.
    """
    n_classes = int(labels.max()) + 1
    low, high = (
        torch.zeros(n_classes, dtype=groups.dtype).scatter_reduce(0, labels, groups, extreme, include_self=False)
        for extreme in ("amin", "amax")
    )
    others = (groups != low[labels]) & (groups != high[labels])
    if bool(others.any()):
        raise DataError(
            f"pgi compares two groups in each class and class {int(labels[others][0])} has more; "
            "let it infer its own, or give two"
        )
    return (groups != low[labels]).to(torch.int64)


@dataclass(eq=False)
class PgiLoss(Objective):
    """Cross-entropy plus a penalty on the divergence between the two groups of each class.

    Attributes:
        lam: weight of the penalty once it is fully there.
        ramp_epochs: it grows linearly from 0 over this many epochs of the stage; 0 for all of it at once.
    """

    lam: float = 1.0
    ramp_epochs: int = 10
    _sides: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64), init=False, repr=False)

    def __post_init__(self) -> None:
        for option in ("lam", "ramp_epochs"):
            if not getattr(self, option) >= 0:
                raise ConfigError(f"{option} of pgi is {getattr(self, option)}; give 0 or more")

    def prepare(
        self, examples: Examples, model: nn.Module | None = None, new_optimizer: NewOptimizer | None = None
    ) -> None:
        """Look up the two groups of each class."""
        self._sides = sides_in_class(examples.labels, examples.require_groups("pgi"))

    def weight(self, clock: Clock) -> float:
        """Weight of the penalty in this epoch."""
        return self.lam * min(clock.stage_epoch / self.ramp_epochs, 1) if self.ramp_epochs else self.lam

    def __call__(self, forward: Forward) -> Tensor:
        """The mean cross-entropy and the penalty of a batch."""
        if len(self._sides) == 0:
            raise ConfigError("pgi has not seen the training set; call objective.prepare(train) before training")
        labels = forward.batch.labels
        sides = self._sides[forward.batch.positions].to(labels.device)
        penalty = group_divergence(forward.logits, labels, sides)
        return CrossEntropy()(forward) + self.weight(forward.clock) * penalty


@dataclass(kw_only=True)
class Pgi(SplittingEarly):
    """Split the examples in two early, then train so that both groups of a class are predicted alike.

    Attributes:
        lam: weight of the penalty once it is fully there.
        ramp_epochs: it grows linearly from 0 over this many epochs; 0 for all of it at once.
        even_draws: draw the two groups equally often. Rare examples are otherwise missing from most batches, and with
            them the penalty.
    """

    name: ClassVar[str] = "pgi"

    lam: float = 1.0
    ramp_epochs: int = 10
    even_draws: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.objective()

    def objective(self) -> PgiLoss:
        """The cross-entropy with the penalty."""
        return PgiLoss(self.lam, self.ramp_epochs)

    def infer(self, context: Context) -> Tensor:
        """Twice the class, plus one for what the first stage gets right."""
        return 2 * context.examples.labels + ~self.split(context)

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Draw the two groups equally often, or examples as they come."""
        if not self.even_draws:
            return Plan()
        active = context.active_positions()
        return Plan(sample_weight=spread_over(active, balance_weights(groups[active] % 2), len(groups)))
