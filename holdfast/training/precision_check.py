"""Does a method decide in bfloat16 or float16 as it would in float32? Asked once, at its first decision.

The decision is made again from float32 outputs of the same weights. What differs is the share of the training mass that
lies on other examples, or of examples in another group. Some of that is noise: decisions also change from one optimizer
step to the next. So the yardstick is the float32 decision one step later, and a warning is given where the precision
changes more than such a step does, and more than a hundredth. It costs a forward pass over the training set in float32,
and another one where something differs, once in a training.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import HoldfastError, HoldfastWarning
from holdfast.models.compiled import running_uncompiled, uncompiled
from holdfast.training.model_outputs import ModelOutputs, call, device_of, evaluating, to_device
from holdfast.training.plan import Plan
from holdfast.training.policy import Chain, Context
from holdfast.training.precision import Precision

_NEGLIGIBLE = 0.01  # of the training mass

#: Makes the float32 outputs of a model on the training set.
NewOutputs = Callable[[nn.Module], ModelOutputs]


@dataclass(frozen=True)
class Difference:
    """How far a decision in lower precision is from that in float32.

    Attributes:
        precision: what the model computed in.
        differs: share of the training mass, or of the examples' groups, that is elsewhere.
        noise: the same between two float32 decisions one optimizer step apart; None where it wasn't needed.
    """

    precision: Precision
    differs: float
    noise: float | None = None

    @property
    def matters(self) -> bool:
        """Whether the precision changes more than a step does."""
        return self.differs > max(_NEGLIGIBLE, self.noise or 0.0)


class DecisionCheck:
    """Compares a training's first decision that rests on outputs.

    Args:
        precision: what the model computes in; with fp32 there is nothing to compare.

    Attributes:
        found: what came out, once there was a decision.
    """

    def __init__(self, precision: Precision) -> None:
        self._precision: Precision = precision
        self.found: Difference | None = None

    def copy_of(self, chain: Chain, context: Context) -> Chain | None:
        """The chain before its decision, where the decision is to be made again."""
        if self._precision == "fp32" or self.found is not None or not context.clock.starts_epoch:
            return None
        return copy.deepcopy(chain)

    def compare(
        self,
        before: Chain,
        context: Context,
        plan: Plan,
        new_outputs: NewOutputs,
        optimizer: torch.optim.Optimizer | None,
    ) -> None:
        """Make the decision again in float32, and tell if it matters.

        Args:
            before: the chain as it was before it decided.
            context: what it saw, before it decided.
            plan: what it decided.
            new_outputs: makes float32 outputs.
            optimizer: of the training, for the yardstick.
        """
        assert context.model is not None
        again = _decision(before, context, new_outputs(context.model))
        differs = difference(plan, again, len(context.examples))
        noise = None
        if differs > _NEGLIGIBLE and again is not None:
            later = new_outputs(_one_step_later(context, optimizer))
            noise = difference(again, _decision(before, context, later), len(context.examples))
        self.found = Difference(self._precision, differs, noise)
        if self.found.matters:
            warnings.warn(
                f"in {self._precision} {' >> '.join(member.name for member in before.members)} decides otherwise than "
                f"in float32: {differs:.1%} of the training lies on other examples or groups, while one more optimizer "
                f"step changes {noise or 0:.1%}; give --precision fp32, or bf16 instead of fp16, or train for longer "
                "before the decision",
                HoldfastWarning,
                stacklevel=3,
            )

    def state_dict(self) -> dict[str, Any] | None:
        """What came out, for checkpoints."""
        return None if self.found is None else {"differs": self.found.differs, "noise": self.found.noise}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Take it back, so that a resumed training doesn't ask again."""
        self.found = None if state is None else Difference(self._precision, **state)


def difference(one: Plan | None, other: Plan | None, n: int) -> float:
    """Share of the training mass of `n` examples that two plans put elsewhere, or of examples in other groups.

    Args:
        one: a plan; None for a policy that refused to make one.
        other: another.
        n: how many examples there are.

    Example:
        >>> difference(Plan(copies=torch.tensor([1, 1, 0, 0])), Plan(copies=torch.tensor([1, 0, 1, 0])), 4)
        0.5
    """
    if one is None or other is None:
        return float((one is None) != (other is None))
    moved = 0.5 * float((_mass(one, n) - _mass(other, n)).abs().sum())
    if one.groups is None or other.groups is None:
        return moved
    return max(moved, float((one.groups != other.groups).double().mean()))


def _mass(plan: Plan, n: int) -> Tensor:
    """The share of each example in the training, float64 of shape (n,)."""
    if plan.batches is not None:
        weight = None if plan.batch_weight is None else plan.batch_weight.flatten().double()
        mass = torch.bincount(plan.batches.flatten(), weight, minlength=n).double()
    else:
        mass = plan.visits(n)
    if plan.loss_weight is not None:
        mass = mass * plan.loss_weight.double()
    return mass / mass.sum()


def _decision(before: Chain, context: Context, outputs: ModelOutputs) -> Plan | None:
    """What the chain decides from these outputs; None where it refuses. Nothing is left behind."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        try:
            return copy.deepcopy(before).update(replace(context, model_outputs=outputs, requests=[]))
        except HoldfastError:
            return None


def _one_step_later(context: Context, optimizer: torch.optim.Optimizer | None) -> nn.Module:
    """A copy of the model after a plain optimizer step on a few examples."""
    assert context.model is not None
    # Copied together, the copied optimizer is over the copied parameters.
    model, stepping = copy.deepcopy((uncompiled(context.model), optimizer))
    few = torch.randperm(len(context.examples), generator=context.stream("precision"))[: context.batch_size]
    inputs, labels = context.examples.gather(few)
    device = device_of(model)
    stepping = stepping or torch.optim.SGD(model.parameters(), lr=context.learning_rate or 0.01)
    stepping.zero_grad(set_to_none=True)
    with evaluating(model), torch.enable_grad(), running_uncompiled():
        loss = F.cross_entropy(call(model, to_device(inputs, device)), labels.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
    stepping.step()
    return model
