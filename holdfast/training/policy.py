"""A policy updates the plan when it is due, from what the model makes of the examples.

SPARE, PDE, CREST, EPIC, JTT and balancing are policies: a pure function that selects or weighs, and a thin class here
that decides when to call it. Policies chain: ``Epic(every=5) >> Crest()`` chooses mini-batches inside what EPIC
left. Write one by deriving a dataclass from `Policy`; its fields are its options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.streams import torch_stream
from holdfast.training.clock import Clock
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.plan import Plan, merge

if TYPE_CHECKING:
    from holdfast.training.health.check import Finding
    from holdfast.training.health.observed import Observed
    from holdfast.training.objective import Objective
    from holdfast.training.post_training import PostTraining


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


@dataclass(frozen=True)
class SetOptimizer:
    """Ask for other options of the optimizer until training starts again.

    Attributes:
        weight_decay: the new one; none keeps it (the first stage of SPARE may have its own).
        momentum: the new one, of SGD; none keeps it (PDE's ablation without momentum).
    """

    weight_decay: float | None = None
    momentum: float | None = None


@dataclass(frozen=True)
class StopAugmenting:
    """Ask for training inputs as they are from now on (PDE's augmentation during the warm-up only)."""


#: A training-time augmentation: a batch of inputs and its random stream in, a batch of inputs out.
Augmentation = Callable[[Tensor, torch.Generator], Tensor]

#: What a policy tells of something it did: plain values, nested at will.
Record = dict[str, Any]

_Part = TypeVar("_Part")

Request = Restart | ScaleLearningRate | ResetOptimizer | SetOptimizer | StopAugmenting


@dataclass(frozen=True)
class PlannedTraining:
    """What is known of a training before it starts.

    Attributes:
        epochs: the budget, without the warm-up epochs that policies add.
        batch_size: examples per mini-batch.
        augments: whether the inputs of training batches are augmented.
    """

    epochs: int
    batch_size: int = 32
    augments: bool = False


@dataclass
class Context:
    """What a policy sees when it is due.

    Attributes:
        clock: where training stands, as this policy counts: a policy after one that starts training again begins there.
        examples: the training set.
        plan: what the policies before this one in the chain left.
        model: the model; a policy reads it and never trains it.
        model_outputs: the model's outputs, shared by all policies that are due.
        seed: the run's seed.
        policy: name of the policy, which names its random streams.
        own: what the policy asked for when it was due before; an empty plan at first.
        requests: what policies ask of the training loop.
        validation: the validation set, where the loop gave it; its labels and groups are for tuning only.
        learning_rate: of the optimizer now, where the loop gave one.
        batch_size: examples per mini-batch, of policies that don't make them up themselves.
        augment: what the loop does to the inputs of training batches.
        head: name of the model's head where it can't be found.
    """

    clock: Clock
    examples: Examples
    plan: Plan
    model: nn.Module | None
    model_outputs: ModelOutputs | None
    seed: int
    policy: str = ""
    own: Plan = field(default_factory=Plan)
    requests: list[Request] = field(default_factory=list)
    validation: Examples | None = None
    learning_rate: float | None = None
    batch_size: int = 32
    augment: Augmentation | None = None
    head: str | None = None

    @property
    def outputs(self) -> ModelOutputs:
        """The model's outputs; an error where the loop gave no model."""
        if self.model_outputs is None:
            raise ConfigError(
                f"{self.policy} looks at the model's outputs and was given no model; "
                "pass it: curator.epochs(n, model, optimizer)"
            )
        return self.model_outputs

    def active_positions(self) -> Tensor:
        """Positions of the examples that the policies before this one left, int64."""
        active = self.plan.active
        return torch.arange(len(self.examples)) if active is None else active.nonzero().flatten()

    def require_groups(self) -> Tensor:
        """Group of each example, int64 of shape (n,): those that a policy before this one inferred, else the set's."""
        return self.plan.groups if self.plan.groups is not None else self.examples.require_groups(self.policy)

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
        needs_features: whether it reads the inputs of the head, so that one pass keeps them.
        acts_between_steps: whether it can be due after any step, not only between epochs.
        needs_groups_of: the part of the data whose groups it must be given, where it needs some.
        promises_worst_group: whether its aim is the worst group, so that a bad one is a failure.
        guesses_groups: whether it aims at groups that it is not told, so that only plain training beside it can show
            what it did.
    """

    name: ClassVar[str] = ""
    needs_features: ClassVar[bool] = False
    acts_between_steps: ClassVar[bool] = False
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = None
    promises_worst_group: bool = False
    guesses_groups: bool = False

    @property
    def needs_head(self) -> bool:
        """Whether it needs the model's last linear layer: its inputs, its weights, or another in its place."""
        return self.needs_features

    @property
    def warmup_epochs(self) -> int:
        """Epochs that come on top of the budget, before a `Restart` (SPARE's and JTT's first stage)."""
        return 0

    def due(self, clock: Clock) -> bool:
        """Whether to update now; by default once, before the first epoch.

        Asked at the start of every epoch, and after every step if the policy `acts_between_steps`. Until a policy is
        first due it has no opinion. A policy after one that starts training again is first asked when that happens, and
        its clock starts there: before, training is plain.
        """
        return clock.stage == 0 and clock.starts_stage

    def validate(self, planned: PlannedTraining) -> None:
        """Hear of the training before it starts; raise a ConfigError where the policy could not do its work in it."""

    def objective(self) -> Objective | None:
        """The loss that belongs to this policy; None is the cross-entropy. Used after the warm-up, if there is one."""
        return None

    def post_training(self) -> PostTraining | None:
        """What is done to the chosen model after training; None is nothing."""
        return None

    def update(self, context: Context) -> Plan:
        """This policy's part of the plan from now on; slots left empty mean no opinion."""
        raise NotImplementedError

    def save_artifacts(self, folder: Path) -> None:
        """Write what people may want to look at into the run directory; called whenever the plan has changed."""

    def health(self, observed: Observed) -> list[Finding]:
        """Whether its assumptions hold, from its own state and what the run observed; changes nothing."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What must be remembered besides the plan, for checkpoints: tensors and plain values, nested at will.

        It is written again and again, so its size must not grow with the training; what does is told by `new_records`.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def new_records(self) -> list[Record]:
        """What it did since this was last asked, for the history of the run; no decision rests on it."""
        return []

    def recall(self, records: list[Record]) -> None:
        """Take back the history of a run that goes on: all that `new_records` gave, after `load_state_dict`."""

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
        self.promises_worst_group = any(member.promises_worst_group for member in self.members)
        self.guesses_groups = any(member.guesses_groups for member in self.members)
        self._parts = [Plan()] * len(self.members)

    @property
    def needs_head(self) -> bool:
        """Whether any member needs the model's last linear layer."""
        return any(member.needs_head for member in self.members)

    @property
    def warmup_epochs(self) -> int:
        """Warm-up epochs of all members together."""
        return sum(member.warmup_epochs for member in self.members)

    @property
    def restarts(self) -> int:
        """How many members start training again."""
        return sum(member.warmup_epochs > 0 for member in self.members)

    def due(self, clock: Clock) -> bool:
        """Whether any member is due."""
        return any(self._due(number, clock) for number in range(len(self.members)))

    def validate(self, planned: PlannedTraining) -> None:
        """Tell every member; refuse an order in which one would go on with what it knows of a model that is gone."""
        for member in self.members:
            member.validate(planned)
        for place, first in enumerate(self.members):
            later = next((member for member in self.members[place + 1 :] if member.warmup_epochs > 0), None)
            if first.acts_between_steps and later is not None:
                raise ConfigError(
                    f"{first.name} chooses for the model that is being trained, and {later.name} after it starts "
                    f"training again; put {later.name} before {first.name}"
                )

    def save_artifacts(self, folder: Path) -> None:
        """Let every member write."""
        for member in self.members:
            member.save_artifacts(folder)

    def health(self, observed: Observed) -> list[Finding]:
        """The findings of all members."""
        return [finding for member in self.members for finding in member.health(observed)]

    def objective(self) -> Objective | None:
        """The objective of the one member that has one."""
        return _only([(member.name, member.objective()) for member in self.members], "objective")

    def post_training(self) -> PostTraining | None:
        """What the one member that has a finish does."""
        return _only([(member.name, member.post_training()) for member in self.members], "last step")

    def update(self, context: Context) -> Plan:
        """Update the members that are due, in order, and merge all parts.

        A member whose explicit mini-batches contain what an earlier one has just dropped is updated too. Where a member
        starts training again, those after it see the clock of the new stage.
        """
        clock, parts = context.clock, list[tuple[str, Plan]]()
        for number, member in enumerate(self.members):
            context.plan = merge(parts)
            context.policy = member.name
            part = context.own = self._parts[number]
            if self._due(number, clock) or _outdated(part, context.plan):
                context.clock = self._clock_of(number, clock)
                before = len(context.requests)
                part = member.update(context)
                _check_length(member.name, part, len(context.examples))
                self._parts[number] = part
                if any(isinstance(request, Restart) for request in context.requests[before:]):
                    clock = clock.after_restart()
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

    def new_records(self) -> list[Record]:
        """The new records of all members, each with its policy's name."""
        return [{"policy": member.name, **record} for member in self.members for record in member.new_records()]

    def recall(self, records: list[Record]) -> None:
        """Give every member its own back."""
        for member in self.members:
            own = [record for record in records if record["policy"] == member.name]
            member.recall([{key: record[key] for key in record if key != "policy"} for record in own])

    def merged(self) -> Plan:
        """The plan that the parts make together."""
        return merge((member.name, part) for member, part in zip(self.members, self._parts, strict=True))

    def _clock_of(self, number: int, clock: Clock) -> Clock:
        """The clock as a member counts: negative stages are those it waits for."""
        return clock._replace(stage=clock.stage - sum(m.warmup_epochs > 0 for m in self.members[:number]))

    def _due(self, number: int, clock: Clock) -> bool:
        own = self._clock_of(number, clock)
        return own.stage >= 0 and self.members[number].due(own)


def as_chain(policy: Policy) -> Chain:
    """The policy as a chain of its own; a chain in use elsewhere is not shared."""
    return Chain(_members(policy))


def _members(policy: Policy) -> list[Policy]:
    return list(policy.members) if isinstance(policy, Chain) else [policy]


def _only(parts: list[tuple[str, _Part | None]], what: str) -> _Part | None:
    several = [(name, part) for name, part in parts if part is not None]
    if len(several) > 1:
        names = " and ".join(name for name, _ in several)
        raise ConfigError(f"{names} each bring their own {what}; keep one of them")
    return several[0][1] if several else None


def _outdated(part: Plan, upstream: Plan) -> bool:
    return part.batches is not None and upstream.copies is not None and not bool(upstream.copies[part.batches].all())


def _check_length(name: str, part: Plan, n: int) -> None:
    for slot in ("copies", "sample_weight", "loss_weight", "groups", "strata"):
        vector = getattr(part, slot)
        if vector is not None and len(vector) != n:
            raise ConfigError(f"{name} gave {slot} for {len(vector)} examples, the training set has {n}")
