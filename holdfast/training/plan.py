"""A plan says what to train on until further notice: a small frozen value with one slot per concern.

Methods in different slots compose without knowing of each other, because each slot has one merge rule:

====================  =====================================================  ==========================
slot                  meaning                                                merged by
====================  =====================================================  ==========================
``copies``            how often an epoch visits each example, 0 = dropped    product (of masks: and)
``sample_weight``     draw with replacement in proportion                    product
``strata``            parts that every mini-batch has in proportion          the last one wins
``batches``           explicit mini-batches: weights, inputs, order          the last one wins
``loss_weight``       weight of each example in the loss                     product, mean one over visits
``groups``            group of each example, where a policy inferred it      the last one wins
====================  =====================================================  ==========================

An empty slot means "no opinion".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from holdfast.errors import ConfigError

_VECTORS = {
    "copies": torch.int64,
    "sample_weight": torch.float64,
    "loss_weight": torch.float32,
    "strata": torch.int64,
    "groups": torch.int64,
}


@dataclass(frozen=True, eq=False)
class Plan:
    """What to train on; positions are those of the `Examples` it was made for.

    Attributes:
        copies: int64 or bool of shape (n,). A mask is the usual case; larger numbers repeat examples (JTT).
        sample_weight: float64 of shape (n,), not negative.
        loss_weight: float32 of shape (n,), not negative.
        strata: int64 of shape (n,): a part, such as the class, for each example; the order of draws is such that every
            mini-batch has each part in the proportion in which it is drawn.
        batches: int64 of shape (batches, size), explicit mini-batches (CREST).
        batch_weight: float32 of shape (batches, size): the same example may weigh differently in two batches.
        batch_inputs: of shape (batches, size, ...): the inputs to train on as they are, neither read nor augmented
            again, where the mini-batches were chosen by one view of the examples.
        batch_order: int64 of shape (steps,): which of the mini-batches each step takes, over and over; one at random by
            default.
        groups: int64 of shape (n,): what policies and objectives that need groups go by, instead of the data set's.
    """

    copies: Tensor | None = None
    sample_weight: Tensor | None = None
    loss_weight: Tensor | None = None
    batches: Tensor | None = None
    batch_weight: Tensor | None = None
    batch_inputs: Tensor | None = None
    groups: Tensor | None = None
    strata: Tensor | None = None
    batch_order: Tensor | None = None

    def __post_init__(self) -> None:
        for name, dtype in _VECTORS.items():
            vector = getattr(self, name)
            if vector is None:
                continue
            if vector.ndim != 1:
                raise ConfigError(f"{name} of a plan has shape {tuple(vector.shape)}; give one number per example")
            vector = vector.to(dtype)
            if not bool(torch.isfinite(vector).all()) or bool((vector < 0).any()):
                raise ConfigError(f"{name} of a plan has negative or non-finite entries")
            object.__setattr__(self, name, vector)
        if self.batches is not None and self.batches.ndim != 2:
            raise ConfigError(f"batches of a plan have shape {tuple(self.batches.shape)}; give (batches, size)")
        if self.batch_weight is not None:
            if self.batches is None or self.batches.shape != self.batch_weight.shape:
                raise ConfigError("batch_weight of a plan needs batches of the same shape")
            if not bool(torch.isfinite(self.batch_weight).all()):
                raise ConfigError("batch_weight of a plan has non-finite entries")
        if self.batch_inputs is not None and (
            self.batches is None or self.batches.shape != self.batch_inputs.shape[: self.batches.ndim]
        ):
            raise ConfigError("batch_inputs of a plan need batches, and an input for each of their examples")
        if self.batch_order is not None and (
            self.batches is None
            or not len(self.batch_order)
            or not 0 <= int(self.batch_order.min()) <= int(self.batch_order.max()) < len(self.batches)
        ):
            raise ConfigError("batch_order of a plan needs batches, and names some of them by their numbers from 0")

    @property
    def active(self) -> Tensor | None:
        """Which examples take part, bool of shape (n,); None means all."""
        return None if self.copies is None else self.copies > 0

    def shares(self, parts: Tensor) -> Tensor:
        """Share of the draws that each part gets under this plan.

        Args:
            parts: class or group of each example, int64 of shape (n,).

        Returns:
            float64 of shape (parts,) that sums to one.
        """
        if self.batches is not None:
            visits = torch.bincount(self.batches.flatten(), minlength=len(parts)).to(torch.float64)
        else:
            visits = self.visits(len(parts))
        return torch.bincount(parts, visits) / visits.sum()

    def visits(self, n: int) -> Tensor:
        """How often each of `n` examples is drawn relative to the others, float64 of shape (n,); 0 = never.

        A policy that makes mini-batches itself goes by what those before it ask for here, since explicit mini-batches
        replace all drawing.
        """
        return _visits(n, self.copies, self.sample_weight)

    def same_as(self, other: Plan) -> bool:
        """Whether both plans say the same, element by element."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if (mine is None) != (theirs is None):
                return False
            if mine is not None and not torch.equal(mine, theirs):
                return False
        return True

    def tensors(self) -> dict[str, Tensor]:
        """The filled slots by name, for checkpoints."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}


def merge(parts: Iterable[tuple[str, Plan]]) -> Plan:
    """One plan out of the parts that several policies ask for, in the order of their chain.

    Args:
        parts: (name of the policy, its part) in order.

    Returns:
        The merged plan; loss weights have mean one over what an epoch visits.

    Raises:
        ConfigError: if a combination makes no sense: nothing is left to train on, sampling weights come after explicit
            mini-batches, or explicit mini-batches contain dropped examples.

    Example:
        >>> import torch
        >>> kept = Plan(copies=torch.tensor([True, True, False]))
        >>> weighed = Plan(loss_weight=torch.tensor([1.0, 3.0, 9.0]))
        >>> merge([("epic", kept), ("weights", weighed)]).loss_weight.tolist()
        [0.5, 1.5, 4.5]
    """
    copies: Tensor | None = None
    sample_weight: Tensor | None = None
    loss_weight: Tensor | None = None
    batches: Tensor | None = None
    batch_weight: Tensor | None = None
    batch_inputs: Tensor | None = None
    batch_order: Tensor | None = None
    groups: Tensor | None = None
    strata: Tensor | None = None
    batches_by = ""
    # In the order of the chain, since two rules depend on it: the last word on groups and on mini-batches wins, and
    # sampling weights must come before the mini-batches that they are to shape.
    for name, part in parts:
        copies = _product(copies, part.copies)
        loss_weight = _product(loss_weight, part.loss_weight)
        groups = groups if part.groups is None else part.groups
        strata = strata if part.strata is None else part.strata
        if part.sample_weight is not None:
            if batches is not None:
                raise ConfigError(
                    f"{name} sets sampling weights after {batches_by} has fixed the mini-batches, so they would have "
                    f"no effect; put {name} before {batches_by}"
                )
            sample_weight = _product(sample_weight, part.sample_weight)
        if part.batches is not None:
            # They belong together, so none of an earlier policy's stays. Explicit mini-batches replace drawing:
            # their maker has taken the sampling weights before it into account (`Plan.visits`), and left in the plan
            # they would count twice in the mean of the loss weights below.
            batches, batch_weight, batch_inputs = part.batches, part.batch_weight, part.batch_inputs
            batch_order, batches_by, sample_weight = part.batch_order, name, None
    if copies is not None and not bool(copies.any()):
        raise ConfigError("no example is left to train on: the policies dropped every one; loosen the last one added")
    if sample_weight is not None:
        mass = sample_weight if copies is None else sample_weight * copies
        if not bool((mass > 0).any()):
            raise ConfigError("no example is left to train on: every remaining one has sampling weight 0")
    if batches is not None and copies is not None and not bool(copies[batches].all()):
        raise ConfigError(f"the mini-batches of {batches_by} contain dropped examples; it must run again after a drop")
    if loss_weight is not None:
        # Mean one over what an epoch visits, not over the set: a learning rate then means the same with weights as
        # without, also where examples are dropped, repeated or drawn unevenly.
        visits = _visits(len(loss_weight), copies, sample_weight)
        mean = float((loss_weight * visits).sum() / visits.sum())
        if mean == 0:
            raise ConfigError("every remaining example has loss weight 0, so nothing would be learned")
        loss_weight = loss_weight / mean
    return Plan(copies, sample_weight, loss_weight, batches, batch_weight, batch_inputs, groups, strata, batch_order)


def _visits(n: int, copies: Tensor | None, sample_weight: Tensor | None) -> Tensor:
    """How often each example comes relative to the others, float64 of shape (n,)."""
    product = _product(copies, sample_weight)
    return torch.ones(n, dtype=torch.float64) if product is None else product.to(torch.float64)


def _product(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    if left is None or right is None:
        return right if left is None else left
    return left * right
