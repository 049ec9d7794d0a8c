"""CnC (Correct-n-Contrast): take a plain model's predictions for the shortcut, and pull its sides together by contrast.

Zhang et al. 2022 (https://arxiv.org/abs/2203.01517); a baseline of SPARE. After a first, plain stage, examples of a
class that it gets right are anchors: they look as the class usually does. Their positives are of the same class and
were taken for another; their negatives are of another class and were taken for the anchor's. The second stage brings
features of anchors and positives together and drives negatives away, with a cross-entropy on all of them. It needs no
group labels, but a first stage that is wrong about the minority. Published runs: sets of 32, 17, 64 and 16 examples per
role and tau of .05, .1, .05 and .1 for CMNIST, Waterbirds, CelebA and CivilComments.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError, HoldfastWarning
from holdfast.spurious.group_inference.base import GroupInference, spread_over
from holdfast.training.clock import Clock
from holdfast.training.objective import Forward, Objective
from holdfast.training.plan import Plan
from holdfast.training.policy import Context


def contrastive_batches(
    labels: Tensor, predictions: Tensor, size: int, generator: torch.Generator, *, two_sided: bool = False
) -> Tensor:
    """Mini-batches of anchors, positives and negatives, as many as make about one pass over the anchors.

    All anchors of a mini-batch are of one class, so its positives and negatives are those of each of them. Classes that
    have anchors and positives have equally many mini-batches; a class without positives gives no anchors. Where no
    other class was taken for the anchors', the negatives are of any other class.

    Args:
        labels: class of each example, int64 of shape (n,).
        predictions: class that the first stage predicts, int64 of shape (n,).
        size: examples per role.
        generator: random stream.
        two_sided: let the positives of a mini-batch be anchors too: all of them were taken for the same class, and
            negatives of theirs are a fourth role.

    Returns:
        int64 of shape (batches, 3 x size), or 4 x size if two-sided: in each row anchors, positives, the anchors'
        negatives, the positives' negatives.

    Raises:
        ConfigError: if no class has both anchors and positives.

    Example:
        >>> import torch
        >>> labels, predictions = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 0])
        >>> contrastive_batches(labels, predictions, 1, torch.Generator()).tolist()
        [[0, 1, 3], [2, 3, 1]]
    """
    right = predictions == labels
    classes = _classes_with_anchors(labels, right)
    n_anchors = sum(int((right & (labels == c)).sum()) for c in classes)
    count = -(-n_anchors // (size * len(classes)))

    def draw(pool: Tensor, rows: int) -> Tensor:
        return _shuffles(pool.nonzero().flatten(), rows * size, generator).reshape(rows, size)

    def draw_negatives(c: int, prediction: int, rows: int) -> Tensor:
        others = labels != c
        mistaken = others & (predictions == prediction)
        return draw(mistaken if bool(mistaken.any()) else others, rows)

    batches = []
    for c in classes:
        anchors, wrong = draw(right & (labels == c), count), ~right & (labels == c)
        if not two_sided:
            batches.append(torch.cat([anchors, draw(wrong, count), draw_negatives(c, c, count)], 1))
            continue
        positives, of_positives = torch.empty_like(anchors), torch.empty_like(anchors)
        taken_for = predictions[_shuffles(wrong.nonzero().flatten(), count, generator)]
        for prediction in sorted(set(taken_for.tolist())):
            rows = (taken_for == prediction).nonzero().flatten()
            positives[rows] = draw(wrong & (predictions == prediction), len(rows))
            of_positives[rows] = draw_negatives(c, prediction, len(rows))
        batches.append(torch.cat([anchors, positives, draw_negatives(c, c, count), of_positives], 1))
    return torch.cat(batches)


def contrast(anchors: Tensor, positives: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """Supervised contrastive loss on cosine similarities, the mean over all pairs of an anchor and a positive.

    Args:
        anchors: features, shape (a, d).
        positives: what anchors should be near, shape (p, d).
        negatives: what they should be far from, shape (q, d).
        tau: temperature.

    Returns:
        Mean of -log(e^(cos(anchor, positive) / tau) / sum over all positives and negatives of e^(cos / tau)), a scalar.

    Example:
        >>> here, there = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        >>> float(contrast(here, here, there, 1.0)) < float(contrast(here, there, here, 1.0))
        True
    """
    others = F.normalize(torch.cat([positives, negatives]), dim=1)
    similarities = F.normalize(anchors, dim=1) @ others.T / tau
    return (similarities.logsumexp(1, keepdim=True) - similarities[:, : len(positives)]).mean()


@dataclass(eq=False)
class CncLoss(Objective):
    """Contrastive loss and cross-entropy on the mini-batches of `contrastive_batches`.

    Attributes:
        tau: temperature of the contrastive loss.
        weight: of the contrastive loss; the cross-entropy has the rest to one.
        two_sided: whether the mini-batches are two-sided, and the positives are anchors too.
    """

    tau: float = 0.05
    weight: float = 0.75
    two_sided: bool = False

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise ConfigError(f"tau of cnc is {self.tau}; give a positive number")
        if not 0 <= self.weight <= 1:
            raise ConfigError(f"weight of cnc is {self.weight}; give a number from 0 to 1")

    def __call__(self, forward: Forward) -> Tensor:
        """The contrast, and the mean cross-entropy of all examples of the batch, by their weights."""
        n_roles = 4 if self.two_sided else 3
        if len(forward.batch.labels) % n_roles:
            raise ConfigError(
                f"cnc's loss was given {len(forward.batch.labels)} examples, which don't divide into {n_roles} roles; "
                "let no other policy choose the mini-batches"
            )
        anchors, positives, negatives, *of_positives = forward.features.chunk(n_roles)
        contrasted = contrast(anchors, positives, negatives, self.tau)
        if self.two_sided:
            contrasted = contrasted + contrast(positives, anchors, of_positives[0], self.tau)
        return self.weight * contrasted + (1 - self.weight) * (forward.batch.weights * forward.losses).mean()


@dataclass(kw_only=True)
class Cnc(GroupInference):
    """Train plainly, then contrast what the first model got right and wrong within a class; needs no group labels.

    Its groups, for other methods, are the cells of class and prediction: class x classes + prediction. An epoch of the
    second stage is about one pass over the anchors, which come with as many positives and negatives, newly drawn every
    epoch.

    Attributes:
        infer_epoch: epochs of the first stage, on top of the budget.
        set_size: anchors per mini-batch, and as many examples of each other role; the batch size isn't used.
        tau: temperature of the contrastive loss.
        weight: of the contrastive loss; the cross-entropy has the rest to one.
        two_sided: contrast with the roles of anchors and positives exchanged too and add both, as the authors' own runs
            do; mini-batches are larger by a third.
    """

    name: ClassVar[str] = "cnc"

    set_size: int = 32
    tau: float = 0.05
    weight: float = 0.75
    two_sided: bool = False

    def __post_init__(self) -> None:
        self._groups: Tensor | None = None
        super().__post_init__()
        for option in ("infer_epoch", "set_size"):
            if getattr(self, option) < 1:
                raise ConfigError(f"{option} of cnc is {getattr(self, option)}; give at least 1")
        self.objective()

    def objective(self) -> CncLoss:
        """The contrastive loss with the cross-entropy."""
        return CncLoss(self.tau, self.weight, self.two_sided)

    @property
    def needs_head(self) -> bool:
        """Features are contrasted."""
        return True

    def due(self, clock: Clock) -> bool:
        """After the first stage, and before every later epoch, to draw new mini-batches."""
        return super().due(clock) or (clock.stage > 0 and clock.starts_epoch)

    def update(self, context: Context) -> Plan:
        """Infer and start again, or draw new mini-batches."""
        if context.clock.stage == 0:
            return super().update(context)
        assert self._groups is not None
        return replace(self.plan_from_groups(context, self._groups), groups=self._groups)

    def infer(self, context: Context) -> Tensor:
        """The cells of class and prediction."""
        active, n_classes = context.active_positions(), context.examples.n_classes
        cells = context.examples.labels[active] * n_classes + context.outputs.predictions(active)
        self._groups = spread_over(active, cells, len(context.examples))
        return self._groups

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Mini-batches for an epoch, and how often it visits each example, which makes it as long as they are."""
        active, labels = context.active_positions(), context.examples.labels
        chosen = contrastive_batches(
            labels[active],
            groups[active] % context.examples.n_classes,
            self.set_size,
            context.stream("batches"),
            two_sided=self.two_sided,
        )
        batches = active[chosen]
        if context.clock.stage == 0:
            _warn_of_absent_classes(labels[active], labels[batches], context.examples.class_names)
        return Plan(copies=torch.bincount(batches.flatten(), minlength=len(groups)), batches=batches)

    def state_dict(self) -> dict[str, Any]:
        """The groups once they are inferred: every epoch's mini-batches are drawn from them."""
        return {} if self._groups is None else {"groups": self._groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the groups."""
        self._groups = state.get("groups")


def _classes_with_anchors(labels: Tensor, right: Tensor) -> list[int]:
    """The classes in which some examples are right and some wrong."""
    if len(labels.unique()) < 2:
        raise ConfigError("cnc contrasts classes and all training examples are of one; give data with two or more")
    if bool(right.all()):
        raise ConfigError(
            "cnc's first stage misclassifies no training example, so no anchor has a positive; "
            "lower `infer_epoch`, or regularise more with first_weight_decay"
        )
    classes = sorted(set(labels[right].tolist()) & set(labels[~right].tolist()))
    if not classes:
        raise ConfigError(
            "cnc's first stage gets every class wholly right or wholly wrong, so no anchor has a positive; "
            "raise `infer_epoch`, or check the learning rate and the labels"
        )
    return classes


def _shuffles(pool: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` elements of the pool, one shuffle of it after the other, so that each comes equally often up to one."""
    passes = -(-count // len(pool))
    return torch.cat([pool[torch.randperm(len(pool), generator=generator)] for _ in range(passes)])[:count]


def _warn_of_absent_classes(labels: Tensor, drawn: Tensor, names: tuple[str, ...]) -> None:
    absent = sorted(set(labels.tolist()) - set(drawn.flatten().tolist()))
    if absent:
        warnings.warn(
            f"cnc's mini-batches have no example of {', '.join(names[c] for c in absent)}, which the first stage "
            "confuses with no other class, so it won't be learned; lower `infer_epoch`, or use another method",
            HoldfastWarning,
            stacklevel=2,
        )
