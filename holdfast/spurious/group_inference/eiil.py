"""EIIL: find the two environments between which an early model's errors differ most, then GroupDRO on them.

Creager, Jacobsen and Zemel, "Environment Inference for Invariant Learning" (ICML 2021,
https://arxiv.org/abs/2010.07249); a baseline of SPARE and PDE. A model that relies on a shortcut wants its logits
scaled up where the shortcut holds and scaled down where it doesn't. So each example is assigned softly to one of two
environments such that the squared gradients of their losses with respect to a logit scale are largest. It needs no
group labels and a first stage that has learned the shortcut and little else: 1 epoch for Waterbirds and CelebA, 5 for
coloured MNIST. With two classes, the optimum is the set of the first stage's errors and its complement: EIIL and JTT
find the same examples and differ in what they do with them.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.spurious.group_inference.base import GroupInference, spread_over
from holdfast.spurious.objectives.group_dro import GroupDroLoss
from holdfast.spurious.reweighting.balancing import balance_weights
from holdfast.training.plan import Plan
from holdfast.training.policy import Context

_BETA_1, _BETA_2, _EPS = 0.9, 0.999, 1e-8
_CHECK_EVERY = 100

_log = logging.getLogger(__name__)


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    """How the cross-entropy of each example changes when its logits are scaled up.

    Args:
        logits: float of shape (n, classes).
        labels: class of each example, int64 of shape (n,).

    Returns:
        d/ds CE(s z, y) at s = 1, which is sum_k p_k z_k - z_y; float64 of shape (n,). Never positive where the model is
        right. Positive where it is wrong, unless there are more than two classes and it is wrong by a narrow margin.
    """
    z = logits.to(torch.float64)
    return (z.softmax(1) * z).sum(1) - z.gather(1, labels[:, None]).squeeze(1)


def environments(
    logits: Tensor,
    labels: Tensor,
    *,
    generator: torch.Generator,
    steps: int = 20_000,
    learning_rate: float = 0.01,
) -> Tensor:
    """Assign every example to one of two environments, so that their scale gradients are far from zero.

    Example i is in the first environment by the share sigmoid(u_i) and in the second by the rest, u drawn from a normal
    distribution. Adam maximises the mean over the environments of (mean_i share_i x gradient_i)^2, and shares are cut
    at one half. The gradients of the examples are numbers, so a step is a few operations on vectors. Each u_i moves in
    one direction only, that of the first step; so once all are on their side, the remaining steps change nothing and
    are left out. An example whose gradient is next to nothing stays where it was drawn, as in the published method.

    Args:
        logits: of the early model, float of shape (n, classes).
        labels: class of each example, int64 of shape (n,).
        generator: draws u.
        steps: of Adam.
        learning_rate: of Adam.

    Returns:
        bool of shape (n,): True in the environment where scaling logits up hurts, that of the early model's errors. The
        optimum is the sign of `scale_gradients`.

    Raises:
        DataError: if shapes disagree, there are no examples, or a logit is not finite.

    Example:
        >>> import torch
        >>> logits, y = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1])
        >>> environments(logits, y, generator=torch.Generator().manual_seed(0)).tolist()
        [False, False, True]
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(labels) == 0:
        raise DataError(
            f"logits have shape {tuple(logits.shape)} and labels {tuple(labels.shape)}; give (n, c) and (n,)"
        )
    if not bool(torch.isfinite(logits).all()):
        raise DataError("some logits are not finite, so there is nothing to split by; lower the learning rate")
    gradient = scale_gradients(logits, labels).to(torch.float32)
    u = torch.randn(len(labels), generator=generator)
    drawn_apart = _ascend(u, gradient, steps, learning_rate)
    return u > 0 if drawn_apart > 0 else u <= 0


def _ascend(u: Tensor, gradient: Tensor, steps: int, learning_rate: float) -> float:
    """Move u by Adam, in place; returns by how much the first environment's mean gradient exceeds the second's.

    The objective's derivative is that difference x gradient_i x share_i (1 - share_i) / n. Adam's eps is multiplied by
    n instead of dividing by n here, which is the same and keeps squares from underflowing. The loop is written out with
    buffers because it is most of the cost of the method.
    """
    n, total = len(u), float(gradient.sum())
    mean, square, share, slope, scale = (torch.zeros_like(u) for _ in range(5))
    difference = 0.0
    for step in range(1, steps + 1):
        torch.sigmoid(u, out=share)
        difference = (2 * float(torch.dot(share, gradient)) - total) / n
        torch.addcmul(share, share, share, value=-1, out=slope).mul_(gradient)
        mean.mul_(_BETA_1).add_(slope, alpha=(1 - _BETA_1) * difference)
        square.mul_(_BETA_2).addcmul_(slope, slope, value=(1 - _BETA_2) * difference**2)
        correction = math.sqrt(1 - _BETA_2**step)
        torch.sqrt(square, out=scale).add_(_EPS * n * correction)
        u.addcdiv_(mean, scale, value=learning_rate * correction / (1 - _BETA_1**step))
        if step % _CHECK_EVERY == 0 and bool((u * gradient * math.copysign(1, difference) >= 0).all()):
            break
    return difference


@dataclass(kw_only=True)
class SplittingEarly(GroupInference):
    """What EIIL and PGI share: train plainly for a while, then split the training set into two environments.

    Attributes:
        infer_epoch: epochs of plain training before the split, on top of the budget.
        assignment_steps: steps of Adam that assign the examples.
        assignment_rate: learning rate of these steps.
    """

    assignment_steps: int = 20_000
    assignment_rate: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("infer_epoch", "assignment_steps"):
            if getattr(self, option) < 1:
                raise ConfigError(f"{option} of {self.name} is {getattr(self, option)}; give at least 1")
        if not self.assignment_rate > 0:
            raise ConfigError(f"assignment_rate of {self.name} is {self.assignment_rate}; give a positive number")

    def split(self, context: Context) -> Tensor:
        """Which examples are in the environment of the errors, bool of shape (n,); False for those not active."""
        active = context.active_positions()
        erring = environments(
            context.outputs.logits(active),
            context.examples.labels[active],
            generator=context.stream("environments"),
            steps=self.assignment_steps,
            learning_rate=self.assignment_rate,
        )
        count = int(erring.sum())
        _log.info("%s: %d of %d examples are in the environment of the errors", self.name, count, len(erring))
        if bool(erring.all()) or not bool(erring.any()):
            raise ConfigError(
                f"{self.name} finds one environment only, since the first stage treats all training examples alike; "
                "lower `infer_epoch` if it fits them all, raise it if it fits none"
            )
        return spread_over(active, erring, len(context.examples))


@dataclass(kw_only=True)
class Eiil(SplittingEarly):
    """Split the examples into two environments early, then train with GroupDRO on them; needs no group labels.

    Attributes:
        by_class: the groups are the environments of each class; otherwise the two environments.
        eta_q: step size of GroupDRO's weights; 0 keeps them uniform.
        adjustment: C of GroupDRO's generalisation adjustment C / sqrt(group size).
    """

    name: ClassVar[str] = "eiil"

    by_class: bool = True
    eta_q: float = 0.01
    adjustment: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.objective()

    def objective(self) -> GroupDroLoss:
        """GroupDRO on the inferred groups."""
        return GroupDroLoss(self.eta_q, self.adjustment)

    def infer(self, context: Context) -> Tensor:
        """Twice the class, plus one in the environment of the errors; or that one alone."""
        errors = self.split(context).to(torch.int64)
        return 2 * context.examples.labels + errors if self.by_class else errors

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Draw groups equally often, as GroupDRO does."""
        active = context.active_positions()
        return Plan(sample_weight=spread_over(active, balance_weights(groups[active]), len(groups)))
