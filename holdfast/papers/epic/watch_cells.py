"""What Figure 4.3 of EPIC's chapter looks at, at every round: gradients of poisons, and what dropping does to the mean.

The document draws effective poisons only; here all poisons that are still there count, since which of them work differs
from seed to seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from holdfast.papers.engine.pins import options, pinned
from holdfast.papers.engine.witness import tell
from holdfast.papers.epic.beds import bed
from holdfast.papers.epic.cells import crafted, tell_of
from holdfast.poisoning import Epic
from holdfast.poisoning.analysis import Isolation, dropped_over_time, gradient_error, isolation
from holdfast.poisoning.attacks import PoisonedSet, train_victim
from holdfast.streams import torch_stream
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.plan import Plan
from holdfast.training.policy import Context


class Watched(Epic):
    """EPIC with an observer who knows the poisons and the target; what it drops is the same.

    Args:
        poisoned: the poisons.
        options: EPIC's.
    """

    def __init__(self, poisoned: PoisonedSet, **options: Any) -> None:
        super().__init__(**options)
        self.poisoned = poisoned
        self.remaining_errors: list[float] = []
        self.random_errors: list[float] = []
        self.alone: list[Isolation] = []

    def update(self, context: Context) -> Plan:
        """A round, and what is seen of it."""
        self._see_poisons(context)
        plan = super().update(context)
        assert self._remaining is not None and context.model is not None
        remaining = self._remaining.nonzero().flatten()
        stream = torch_stream(context.clock.epoch, "as many")
        as_many = torch.randperm(len(self._remaining), generator=stream)[: len(remaining)]
        seen = {"model": context.model, "examples": context.examples}
        self.remaining_errors.append(pinned(gradient_error, **seen, kept=remaining))
        self.random_errors.append(pinned(gradient_error, **seen, kept=as_many))
        return plan

    def _see_poisons(self, context: Context) -> None:
        left = torch.isin(context.examples.ids, self.poisoned.ids)
        if self._remaining is not None:
            left &= self._remaining
        if int(left.sum()) < 2:
            return
        self.alone.append(isolation(context.outputs.residuals()[left], self._target(context)))

    def _target(self, context: Context) -> Tensor:
        """The target's p - y under the adversarial label."""
        assert context.model is not None
        shown = self.poisoned.aim.shown(context.examples, 0)
        wanted = replace(shown, labels=torch.full_like(shown.labels, self.poisoned.adversarial_class))
        return ModelOutputs(context.model, wanted).residuals()[0]


def watch(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train a victim of gradient matching under EPIC, and watch.

    Args:
        settings: ``bed`` (its arguments) and ``options`` of EPIC.
        seed: of the trial.

    Returns:
        ``kept error`` and ``random error``, the distance of the gradient of what is kept and of as many at random from
        that of all, mean over rounds; ``nearer``, the share of rounds in which the kept are nearer; ``poisons
        dropped`` and ``clean dropped``, shares; ``mutual`` and ``to target``, cosines at the ``first`` and ``last``
        round.
    """
    ground = bed(**settings["bed"])
    poisoned = crafted("gradient matching", tuple(settings["bed"].items()), seed)
    policy = Watched(poisoned, **options(Epic, settings["options"]))
    training = replace(ground.victim, seed=seed, augment="flip")
    splits, scenario = poisoned.poison(ground.splits), ground.scenario
    victim = train_victim(ground.start(seed), splits, poisoned.aim, training, scenario=scenario, defence=policy)
    tell_of(ground, poisoned)
    tell("victim", victim.model)
    tell("errors", {"kept": policy.remaining_errors, "random": policy.random_errors})
    tell("cosines", [value for seen in policy.alone for value in (seen.mutual, seen.to_target)])
    every = ground.splits.train.ids
    kinds = {"poisons": poisoned.ids, "clean": every[~torch.isin(every, poisoned.ids)]}
    dropped = dropped_over_time(policy.drops, kinds)
    errors = list(zip(policy.remaining_errors, policy.random_errors, strict=True))
    return {
        "kept error": fmean(policy.remaining_errors),
        "random error": fmean(policy.random_errors),
        "nearer": fmean(float(ours < random) for ours, random in errors),
        "poisons dropped": dropped["poisons"][-1],
        "clean dropped": dropped["clean"][-1],
        "mutual, first": policy.alone[0].mutual,
        "mutual, last": policy.alone[-1].mutual,
        "to target, first": policy.alone[0].to_target,
        "to target, last": policy.alone[-1].to_target,
    }
