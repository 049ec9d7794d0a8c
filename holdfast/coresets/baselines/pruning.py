"""Train a little, score every example, start again on some: EL2N, GraNd, forgetting and coverage as policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.coresets.baselines.coverage import coverage_sample, margins
from holdfast.coresets.baselines.scores import Forgetting, gradient_norms
from holdfast.coresets.baselines.subset import class_parts, subset_plan, subset_size
from holdfast.errors import ConfigError
from holdfast.training.clock import Clock
from holdfast.training.options import check_kinds
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy, Restart


@dataclass(kw_only=True)
class Pruning(Policy):
    """Keeps the examples with the highest scores. Derive and write `score`.

    Attributes:
        fraction: of the examples to keep.
        score_epochs: epochs of plain training before they are scored, on top of the budget.
        by_class: keep the same fraction of every class, instead of the hardest wherever they are.
    """

    fraction: float = 0.1
    score_epochs: int = 10
    by_class: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction of {self.name} is {self.fraction}; give a number above 0, at most 1")
        if self.score_epochs < 1:
            raise ConfigError(f"score_epochs of {self.name} is {self.score_epochs}; give at least 1")

    @property
    def warmup_epochs(self) -> int:
        """The training that scores are taken from."""
        return self.score_epochs

    def due(self, clock: Clock) -> bool:
        """Once, after the first training."""
        return clock.stage == 0 and clock.starts_epoch and clock.stage_epoch == self.score_epochs

    def score(self, context: Context, pool: Tensor) -> Tensor:
        """How hard each example of the pool is, shape (pool,)."""
        raise NotImplementedError

    def update(self, context: Context) -> Plan:
        """Score, keep the hardest, start again."""
        pool = context.active_positions()
        scores = self.score(context, pool).to(torch.float64)
        context.request(Restart())
        size, everywhere = subset_size(self.fraction, len(pool)), torch.full((len(context.examples),), -torch.inf)
        everywhere = everywhere.to(torch.float64)
        everywhere[pool] = scores
        parts = (
            [(members, share) for _, members, share in class_parts(context.examples.labels, pool, size)]
            if self.by_class
            else [(pool, size)]
        )
        first = [members[self.keep(context, everywhere[members], share)] for members, share in parts]
        return subset_plan(len(context.examples), torch.cat(first))

    def keep(self, context: Context, scores: Tensor, share: int) -> Tensor:
        """Places of the examples that are kept, by their scores: the highest."""
        return scores.argsort(descending=True, stable=True)[:share]


@dataclass(kw_only=True)
class El2n(Pruning):
    """Keeps what the model is most wrong about early in training."""

    name: ClassVar[str] = "el2n"

    def score(self, context: Context, pool: Tensor) -> Tensor:
        """The norm of softmax - one-hot."""
        norms: Tensor = context.outputs.residuals(pool).norm(dim=1)
        return norms


@dataclass(kw_only=True)
class Grand(Pruning):
    """Keeps what has the largest gradients of the last layer early in training."""

    name: ClassVar[str] = "grand"
    needs_features: ClassVar[bool] = True

    def score(self, context: Context, pool: Tensor) -> Tensor:
        """The norm of the last layer's gradient."""
        return gradient_norms(context.outputs.residuals(pool), context.outputs.features(pool))


class WatchedPruning(Pruning):
    """Scores by what happens over the epochs of the first training. Derive, write `watch` and `score`."""

    def due(self, clock: Clock) -> bool:
        """After every epoch of the first training."""
        return clock.stage == 0 and clock.starts_epoch and 0 < clock.stage_epoch <= self.score_epochs

    def watch(self, context: Context, pool: Tensor) -> None:
        """Take in what the model makes of the pool after an epoch; `stage_epoch` is 1 after the first."""
        raise NotImplementedError

    def update(self, context: Context) -> Plan:
        """Watch; in the end keep some and start again."""
        self.watch(context, context.active_positions())
        return super().update(context) if context.clock.stage_epoch == self.score_epochs else Plan()


@dataclass(kw_only=True)
class Forgotten(WatchedPruning):
    """Keeps what is learned and forgotten most often, and what is never learned."""

    name: ClassVar[str] = "forgetting"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts: Forgetting | None = None

    def watch(self, context: Context, pool: Tensor) -> None:
        """Count what was right and is wrong."""
        if self._counts is None or context.clock.stage_epoch == 1:
            self._counts = Forgetting(len(context.examples))
        right = torch.zeros(len(context.examples), dtype=torch.bool)
        right[pool] = context.outputs.predictions(pool) == context.examples.labels[pool]
        self._counts.record(right)

    def score(self, context: Context, pool: Tensor) -> Tensor:
        """Forgetting events."""
        assert self._counts is not None
        return self._counts.scores[pool]

    def state_dict(self) -> dict[str, Any]:
        """The counts so far."""
        return {} if self._counts is None else self._counts.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the counts."""
        self._counts = Forgetting(len(state["events"])) if state else None
        if self._counts is not None:
            self._counts.load_state_dict(state)


@dataclass(kw_only=True)
class Coverage(WatchedPruning):
    """Keeps some of every level of difficulty, by the area under the margin (CCS).

    Attributes:
        cutoff: share of the examples, the hardest, that are left out first: wrong labels are among them. With larger
            fractions to keep take less.
        strata: into how many levels of equal width the scores are cut.
    """

    name: ClassVar[str] = "ccs"

    cutoff: float = 0.3
    strata: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.cutoff < 1:
            raise ConfigError(f"cutoff of {self.name} is {self.cutoff}; give a number from 0, below 1")
        if self.strata < 1:
            raise ConfigError(f"strata of {self.name} is {self.strata}; give at least 1")
        self._margins = torch.zeros(0)

    def watch(self, context: Context, pool: Tensor) -> None:
        """Add up the margins."""
        if context.clock.stage_epoch == 1:
            self._margins = torch.zeros(len(context.examples))
        self._margins[pool] += margins(context.outputs.logits(pool).float(), context.examples.labels[pool])

    def score(self, context: Context, pool: Tensor) -> Tensor:
        """The mean margin over the epochs."""
        return self._margins[pool] / self.score_epochs

    def keep(self, context: Context, scores: Tensor, share: int) -> Tensor:
        """Evenly many of every stratum."""
        stream = context.stream("coverage", len(scores), share)
        return coverage_sample(scores, share, strata=self.strata, cutoff=self.cutoff, stream=stream)

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return {"margins": self._margins}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the sums."""
        self._margins = state["margins"]
