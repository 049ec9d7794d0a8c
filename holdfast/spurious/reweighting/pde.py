"""PDE (Progressive Data Expansion): learn the core feature on a small balanced set, then add a few examples at a time.

"Robust Learning with Progressive Data Expansion Against Spurious Correlation" (NeurIPS 2023,
https://arxiv.org/abs/2306.04949), Algorithm 1. On the balanced set the spurious feature has no net gradient; afterwards
momentum and a lower learning rate keep what was learned while the set grows. Use it when training groups are known and
training must be cheap: an epoch over the small set is a few steps. The published settings by data set are in
`holdfast.presets`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.primitives.ranks import rank_in_part
from holdfast.spurious.reweighting.balancing import balance_weights, balanced_subset
from holdfast.spurious.reweighting.health import attributes_of_classes, expanded
from holdfast.training.clock import Clock
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.plan import Plan
from holdfast.training.policy import (
    Context,
    PlannedTraining,
    Policy,
    ResetOptimizer,
    ScaleLearningRate,
    SetOptimizer,
    StopAugmenting,
)

#: How an expansion is drawn among the unused examples.
Expansion = Literal["uniform", "group_even", "ordered"]


def draw_expansion(
    policy: Expansion, unused: Tensor, groups: Tensor, m: int | None, generator: torch.Generator
) -> Tensor:
    """The examples that an expansion adds; none twice, since the released code's draws with replacement were a slip.

    Args:
        policy: `uniform` ignores groups; `group_even` takes the same number from each, and a group that runs out leaves
            its share to the others; `ordered` takes the first ones, as the paper's synthetic study did.
        unused: positions to choose from, int64 of shape (unused,), each once.
        groups: group of every example, int64 of shape (n,), looked up by position.
        m: how many; None for all, which are also taken where there are fewer.
        generator: random stream.

    Returns:
        Positions, int64 of shape (min(m, unused),).

    Example:
        >>> import torch
        >>> groups = torch.tensor([0, 0, 0, 0, 1, 2, 2])
        >>> drawn = draw_expansion("group_even", torch.arange(7), groups, 5, torch.Generator().manual_seed(0))
        >>> torch.bincount(groups[drawn]).tolist()
        [2, 1, 2]
    """
    if m is None or m >= len(unused):
        return unused
    if policy == "ordered":
        return unused[:m]
    shuffled = unused[torch.randperm(len(unused), generator=generator)]
    if policy == "uniform":
        return shuffled[:m]
    rounds = rank_in_part(groups[shuffled])
    tie_break = torch.randperm(len(shuffled), generator=generator)
    return shuffled[tie_break[torch.argsort(rounds[tie_break], stable=True)]][:m]


def attribute_balanced(labels: Tensor, attributes: Tensor, generator: torch.Generator) -> Tensor:
    """Equal classes inside each attribute value, so that class and attribute are uncorrelated in a set of some size.

    This is the middle stage of the released CelebA run: 22,880 of each class among women and 1,387 among men, 48,534
    in all. An attribute value that some class never has is left out: nothing in it could be balanced.

    Args:
        labels: class of each example, int64 of shape (n,).
        attributes: attribute value of each example, int64 of shape (n,).
        generator: random stream.

    Returns:
        bool of shape (n,): which examples are kept.

    Raises:
        DataError: if no attribute value goes with every class.
    """
    n_classes = int(labels.max()) + 1
    cells = attributes * n_classes + labels
    counts = torch.bincount(cells, minlength=n_classes * (int(attributes.max()) + 1)).view(-1, n_classes)
    smallest = counts[:, counts.sum(0) > 0].min(1).values
    if not bool(smallest.any()):
        raise DataError("no attribute value occurs with every class, so none can be balanced; turn middle_stage off")
    shuffled = torch.randperm(len(labels), generator=generator)
    keep = torch.zeros(len(labels), dtype=torch.bool)
    keep[shuffled[rank_in_part(cells[shuffled]) < smallest[attributes[shuffled]]]] = True
    return keep


_NEVER = -1  #: the epoch of an example that was not added


@dataclass
class Pde(Policy):
    """Train on a small group-balanced set, then add a few examples every few epochs; needs training group labels.

    Attributes:
        first_expansion: epochs on the balanced set alone (T0), inside the budget; the set first grows before this one.
        every: epochs between expansions (J).
        added: examples that an expansion adds (m); `all` the rest at once, or `equal` parts, so that the last expansion
            within the epochs uses the rest up.
        at_least: keep this many of a group in the balanced set, where it has them, even if the smallest group has
            fewer; 0 for the exact balance.
        caps: instead of drawing, let an expansion raise the number that is kept of each group, to these one after the
            other; empty draws.
        draw: how an expansion is drawn: `uniform`, `group_even` or `ordered`, see `draw_expansion`.
        rate_decay: what the learning rate is multiplied by from the first expansion on; 1 leaves it.
        momentum: what becomes of the momentum at the first expansion. PDE asks to `keep` it; the ablations are
            `zero_buffers`, `no_momentum` from there on, and a `new_optimizer` at a tenth of the learning rate.
        middle_stage: replace the balanced set by a large attribute-balanced one at `first_expansion`, and expand from
            there; needs training attributes.
        expansions: how many expansions (K), not counting the middle stage; none for as many as the epochs allow.
        even_draws: draw groups equally often from the first expansion on, with replacement.
        augment_warmup_only: leave inputs as they are from the first expansion on.
    """

    name: ClassVar[str] = "pde"
    promises_worst_group = True
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = "train"

    first_expansion: int = 30
    every: int = 5
    added: int | Literal["all", "equal"] = 10
    at_least: int = 0
    caps: tuple[int, ...] = ()
    draw: Expansion = "uniform"
    rate_decay: float = 0.01
    momentum: Literal["keep", "zero_buffers", "no_momentum", "new_optimizer"] = "keep"
    middle_stage: bool = False
    expansions: int | None = None
    even_draws: bool = False
    augment_warmup_only: bool = False

    def __post_init__(self) -> None:
        self._balanced = torch.zeros(0, dtype=torch.bool)
        self._added_at = torch.zeros(0, dtype=torch.int32)
        self._epochs: int | None = None
        for option in ("first_expansion", "every", "added", "expansions"):
            value = getattr(self, option)
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"{option} of pde is {value}; give at least 1, or use group-subsampled to never grow")
        if not self.rate_decay > 0:
            raise ConfigError(f"rate_decay of pde is {self.rate_decay}; give a positive factor, 1 to keep the rate")
        if self.caps and (self.middle_stage or list(self.caps) != sorted(self.caps)):
            raise ConfigError(f"caps of pde are {self.caps}; give increasing numbers, and no middle_stage with them")

    def validate(self, planned: PlannedTraining) -> None:
        """The set must grow within the budget."""
        if planned.epochs <= self.first_expansion:
            raise ConfigError(
                f"pde first grows its set after epoch {self.first_expansion} and training has {planned.epochs}; raise "
                "epochs, lower first_expansion, or use group-subsampled to never grow"
            )
        self._epochs = planned.epochs

    def due(self, clock: Clock) -> bool:
        """Before the first epoch, and before those in which the set grows: T0, T0 + J, ..."""
        if clock.stage > 0 or not clock.starts_epoch or clock.stage_epoch < self.first_expansion:
            return clock.stage == 0 and clock.starts_stage
        number, between = divmod(clock.stage_epoch - self.first_expansion, self.every)
        return between == 0 and (self.expansions is None or number < self.expansions + self.middle_stage)

    def update(self, context: Context) -> Plan:
        """The balanced set, the middle stage's set, or the current set and a few more."""
        epoch, active = context.clock.stage_epoch, context.active_positions()
        groups = context.require_groups()
        attributes = _require_attributes(context.examples) if self.middle_stage else None
        nobody = torch.full((len(context.examples),), _NEVER, dtype=torch.int32)
        before = self._added_at
        if context.clock.starts_stage:
            before = nobody
            added = active[balanced_subset(groups[active], context.stream("balanced"), self.at_least)]
            self._balanced = torch.zeros(len(nobody), dtype=torch.bool).index_fill(0, added, True)
        elif attributes is not None and epoch == self.first_expansion:
            before = nobody
            labels = context.examples.labels
            added = active[attribute_balanced(labels[active], attributes[active], context.stream("middle"))]
        else:
            current = before != _NEVER
            added = self._expansion(context, active[~current[active]], groups, current)
        if epoch == self.first_expansion:
            self._switch(context)
        self._added_at = before.index_fill(0, added, epoch)
        current = self._added_at != _NEVER
        if self.even_draws and epoch >= self.first_expansion:
            weights = torch.zeros(len(current), dtype=torch.float64)
            weights[current] = balance_weights(groups[current])
            return Plan(copies=current, sample_weight=weights)
        return Plan(copies=current)

    def health(self, observed: Observed) -> list[Finding]:
        """Whether every class has every attribute, and whether the chosen model is one of the expansion."""
        found = attributes_of_classes(observed)
        if observed.outcome is not None:
            found.append(expanded(observed.outcome.chosen_stage_epoch, self.first_expansion))
        return found

    @property
    def additions(self) -> dict[int, Tensor]:
        """What was added when: positions by epoch since training started, int64; 0 has the balanced set."""
        epochs = torch.unique(self._added_at[self._added_at > 0]).tolist()
        added = {epoch: (self._added_at == epoch).nonzero().flatten() for epoch in epochs}
        return {0: self._balanced.nonzero().flatten(), **added} if len(self._balanced) else added

    def state_dict(self) -> dict[str, Any]:
        """The balanced set, and when each example was added."""
        return {"balanced": self._balanced, "added_at": self._added_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back; checkpoints made before have what was added by epoch."""
        if "additions" not in state:
            self._balanced, self._added_at = state["balanced"], state["added_at"]
            return
        n, additions = len(state["current"]), dict(state["additions"])
        nobody = torch.full((n,), _NEVER, dtype=torch.int32)
        self._balanced, self._added_at = torch.zeros(n, dtype=torch.bool), nobody
        for epoch, added in additions.items():
            if epoch == 0:
                self._balanced = self._balanced.index_fill(0, added, True)
            before = nobody if self.middle_stage and epoch == self.first_expansion else self._added_at
            self._added_at = before.index_fill(0, added, epoch)

    def _expansion(self, context: Context, unused: Tensor, groups: Tensor, current: Tensor) -> Tensor:
        stream, number = context.stream("expansion"), self._expansion_number(context.clock.stage_epoch)
        if self.caps:
            cap = self.caps[min(number, len(self.caps) - 1)]
            room = (cap - torch.bincount(groups[current], minlength=int(groups.max()) + 1)).clamp(min=0)
            shuffled = unused[torch.randperm(len(unused), generator=stream)]
            return shuffled[rank_in_part(groups[shuffled]) < room[groups[shuffled]]]
        if self.added == "equal":
            return draw_expansion(self.draw, unused, groups, -(-len(unused) // self._expansions_left(number)), stream)
        return draw_expansion(self.draw, unused, groups, None if self.added == "all" else self.added, stream)

    def _expansion_number(self, epoch: int) -> int:
        return (epoch - self.first_expansion) // self.every - self.middle_stage

    def _expansions_left(self, number: int) -> int:
        if self._epochs is None:
            raise ConfigError("pde adds equal parts and does not know the number of epochs; give `added` a number")
        total = self._expansion_number(self._epochs - 1) + 1
        return (total if self.expansions is None else min(total, self.expansions)) - number

    def _switch(self, context: Context) -> None:
        """What changes at the first expansion besides the set."""
        context.request(ScaleLearningRate(self.rate_decay))
        if self.momentum != "keep":
            context.request(ResetOptimizer())
        if self.momentum == "no_momentum":
            context.request(SetOptimizer(momentum=0.0))
        if self.momentum == "new_optimizer":
            context.request(ScaleLearningRate(0.1))
        if self.augment_warmup_only:
            context.request(StopAugmenting())


def _require_attributes(examples: Examples) -> Tensor:
    if examples.attributes is None:
        raise DataError("pde's middle stage needs an attribute per training example; give attributes or turn it off")
    return examples.attributes
