"""A policy updates the plan when it is due, from what the model makes of the examples.

SPARE, PDE, CREST, EPIC, JTT and balancing are policies: a pure function that selects or weighs, and a thin class here
that decides when to call it. Policies chain: ``Epic(every=5) >> Crest(batch_size=128)`` chooses mini-batches inside
what EPIC left. Write one by deriving a dataclass from `Policy`; its fields are its options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.primitives.streams import torch_stream
from holdfast.training.clock import Clock
from holdfast.training.plan import Plan, merge
from holdfast.training.sweep import Sweep


@dataclass(frozen=True)
class Restart:
    """Ask for the model and the optimizer as they were before training (second stage of SPARE, JTT)."""


@dataclass(frozen=True)
class ScaleLearningRate:
    """Ask for the learning rate to be multiplied from now on (PDE's expansion stage).

    Attributes:
        factor: by how much.
    """

    factor: float


@dataclass(frozen=True)
class ResetOptimizer:
    """Ask for the optimizer's buffers (momentum) to be cleared, the weights kept (PDE's ablation)."""


Request = Restart | ScaleLearningRate | ResetOptimizer


@dataclass
class Context:
    """What a policy sees when it is due.

    Attributes:
        clock: where training stands.
        examples: the training set.
        plan: what the policies before this one in the chain left.
        model: the model; a policy reads it and never trains it.
        sweep: the model's outputs, shared by all policies that are due.
        seed: the run's seed.
        policy: name of the policy, which names its random streams.
        requests: what policies ask of the training loop.
    """

    clock: Clock
    examples: Examples
    plan: Plan
    model: nn.Module | None
    sweep: Sweep | None
    seed: int
    policy: str = ""
    requests: list[Request] = field(default_factory=list)

    @property
    def outputs(self) -> Sweep:
        """The model's outputs; an error where the loop gave no model."""
        if self.sweep is None:
            raise ConfigError(
                f"{self.policy} looks at the model's outputs and was given no model; "
                "pass it: curator.epochs(n, model, optimizer)"
            )
        return self.sweep

    def active_positions(self) -> Tensor:
        """Positions of the examples that the policies before this one left, int64."""
        active = self.plan.active
        return torch.arange(len(self.examples)) if active is None else active.nonzero().flatten()

    def stream(self, *purpose: str | int) -> torch.Generator:
        """This policy's random stream for `purpose` at this moment."""
        return torch_stream(self.seed, self.policy, self.clock.step, *purpose)

    def request(self, request: Request) -> None:
        """Ask something of the training loop."""
        self.requests.append(request)


class Policy:
    """Decides what to train on. Derive a dataclass, set `name`, and write `update`.

    Attributes:
        name: how it is called in messages, random streams and checkpoints.
        needs_features: whether it reads the inputs of the head, so that one sweep keeps them.
        acts_between_steps: whether it can be due after any step, not only between epochs.
    """

    name: ClassVar[str] = ""
    needs_features: ClassVar[bool] = False
    acts_between_steps: ClassVar[bool] = False

    @property
    def warmup_epochs(self) -> int:
        """Epochs that come on top of the budget, before a `Restart` (SPARE's and JTT's first stage)."""
        return 0

    def due(self, clock: Clock) -> bool:
        """Whether to update now; by default once, before the first epoch.

        Asked at the start of every epoch, and after every step if the policy `acts_between_steps`. Until a policy is
        first due it has no opinion.
        """
        return clock.starts_run

    def update(self, context: Context) -> Plan:
        """This policy's part of the plan from now on; slots left empty mean no opinion."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """What must be remembered besides the plan, for checkpoints: tensors and plain values, nested at will."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def __rshift__(self, other: Policy) -> Chain:
        """This policy, then `other` on what it leaves."""
        return Chain([*_members(self), *_members(other)])


@dataclass(frozen=True)
class Uniform(Policy):
    """Every example once per epoch, shuffled: empirical risk minimisation."""

    name: ClassVar[str] = "uniform"

    def update(self, context: Context) -> Plan:
        """No opinion: the whole set, evenly."""
        return Plan()


class Chain(Policy):
    """Policies one after the other, each on what those before it left; holds the part each one asked for.

    Args:
        members: the policies, in order.

    Attributes:
        members: the policies, in order.
        features_needed: whether any member reads features.
        between_steps: whether any member can be due after any step.
    """

    name: ClassVar[str] = "chain"

    def __init__(self, members: Sequence[Policy]) -> None:
        names = [member.name for member in members]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ConfigError(f"the chain has {', '.join(sorted(repeated))} more than once; keep one of each policy")
        self.members = tuple(members)
        self.features_needed = any(member.needs_features for member in self.members)
        self.between_steps = any(member.acts_between_steps for member in self.members)
        self._parts = [Plan()] * len(self.members)

    @property
    def warmup_epochs(self) -> int:
        """Warm-up epochs of all members together."""
        return sum(member.warmup_epochs for member in self.members)

    def due(self, clock: Clock) -> bool:
        """Whether any member is due."""
        return any(member.due(clock) for member in self.members)

    def update(self, context: Context) -> Plan:
        """Update the members that are due, in order, and merge all parts.

        A member whose explicit mini-batches contain what an earlier one has just dropped is updated too.
        """
        parts: list[tuple[str, Plan]] = []
        for number, member in enumerate(self.members):
            context.plan = merge(parts)
            context.policy = member.name
            part = self._parts[number]
            if member.due(context.clock) or _outdated(part, context.plan):
                part = member.update(context)
                _check_length(member.name, part, len(context.examples))
                self._parts[number] = part
            parts.append((member.name, part))
        return merge(parts)

    def state_dict(self) -> dict[str, Any]:
        """Each member's part and state under its name."""
        return {
            member.name: {"part": part.tensors(), "state": member.state_dict()}
            for member, part in zip(self.members, self._parts, strict=True)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back parts and states; the chain must have the same members."""
        if list(state) != [member.name for member in self.members]:
            raise ConfigError(
                f"the checkpoint was made with the policies {' >> '.join(state)}, this run has "
                f"{' >> '.join(member.name for member in self.members)}; resume with the same ones"
            )
        for number, member in enumerate(self.members):
            self._parts[number] = Plan(**state[member.name]["part"])
            member.load_state_dict(state[member.name]["state"])

    def merged(self) -> Plan:
        """The plan that the parts make together."""
        return merge((member.name, part) for member, part in zip(self.members, self._parts, strict=True))


def as_chain(policy: Policy) -> Chain:
    """The policy as a chain of its own; a chain in use elsewhere is not shared."""
    return Chain(_members(policy))


def _members(policy: Policy) -> list[Policy]:
    return list(policy.members) if isinstance(policy, Chain) else [policy]


def _outdated(part: Plan, upstream: Plan) -> bool:
    return part.batches is not None and upstream.copies is not None and not bool(upstream.copies[part.batches].all())


def _check_length(name: str, part: Plan, n: int) -> None:
    for slot in ("copies", "sample_weight", "loss_weight"):
        vector = getattr(part, slot)
        if vector is not None and len(vector) != n:
            raise ConfigError(f"{name} gave {slot} for {len(vector)} examples, the training set has {n}")
