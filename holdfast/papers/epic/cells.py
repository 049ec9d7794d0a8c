"""What the cells of EPIC's chapter compute: a trial is an attack, a defence, and a victim that trains under both.

The seed of a trial decides the target, the adversarial class, the poisons and the victim's head. A success counts only
where the same victim sees the target rightly on clean data, with and without the defence. Poisons are crafted once per
process, trial and attack, whatever defences they meet.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples, Splits
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.papers.epic.beds import Bed, bed
from holdfast.poisoning import Epic, gradient_medoids
from holdfast.poisoning.attacks import (
    Backdoor,
    BullseyePolytope,
    GradientMatching,
    PoisonedSet,
    SleeperAgent,
    Targets,
    random_bases,
    random_patch,
    steepest_bases,
    train_victim,
)
from holdfast.poisoning.attacks.crafting.aims import Aim
from holdfast.poisoning.attacks.crafting.victims import FrozenExtractor, Victim
from holdfast.poisoning.defenses import (
    ActivationClustering,
    AdversarialPoisoning,
    AsManyAsEpic,
    DeepKnn,
    DpSgd,
    SpectralSignatures,
)
from holdfast.streams import torch_stream
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.policy import Policy

_KEPT = 32  # crafted poisons that stay in memory

DEFENCES: Mapping[str, type[Policy]] = {
    "epic": Epic,
    "as many as epic": AsManyAsEpic,
    "deep-knn": DeepKnn,
    "spectral": SpectralSignatures,
    "activation": ActivationClustering,
    "dp-sgd": DpSgd,
    "adversarial poisoning": AdversarialPoisoning,
}


def _bed(settings: Mapping[str, Any]) -> Bed:
    return bed(**settings["bed"])


@lru_cache(maxsize=_KEPT)
def crafted(attack: str, key: tuple[tuple[str, Any], ...], seed: int) -> PoisonedSet:
    """Poisons of a trial."""
    return _craft(attack, bed(**dict(key)), seed)


def _craft(attack: str, ground: Bed, seed: int) -> PoisonedSet:
    train = ground.splits.train
    stream = torch_stream(seed, "trial")
    adversarial = int(torch.randint(train.n_classes, (), generator=stream))
    if attack == "bullseye":
        target = _target(ground, adversarial, stream)
        bases = random_bases(train, adversarial, ground.poisons, seed)
        plain = replace(ground.brewing, signed=False, decay=False, start="bases")
        return pinned(BullseyePolytope, brewing=plain).craft(ground.surrogate, train, target, bases, seed=seed)
    own = _own_head(ground, seed) if ground.scenario == "transfer" else ground.surrogate
    if attack == "gradient matching":
        target = _target(ground, adversarial, stream)
        bases = random_bases(train, adversarial, ground.poisons, seed)
        matching = pinned(GradientMatching, brewing=ground.brewing, augment=ground.seen_through)
        return matching.craft(own, train, target, bases, seed=seed)
    source = (adversarial + 1 + int(torch.randint(train.n_classes - 1, (), generator=stream))) % train.n_classes
    patch = random_patch(train.input_shape[0], 5, seed)
    bases = steepest_bases(own, train, adversarial, ground.poisons)
    agent = pinned(SleeperAgent, brewing=ground.brewing, augment=ground.seen_through)
    backdoor = pinned(Backdoor, patch=patch, source_class=source, adversarial_class=adversarial)
    return agent.craft(own, train, backdoor, bases, seed=seed)


def _target(ground: Bed, adversarial: int, stream: torch.Generator) -> Targets:
    """A test image of another class, which the attacker's network sees rightly."""
    test = ground.splits.test
    right = ModelOutputs(ground.surrogate, test).predictions() == test.labels
    places = (right & (test.labels != adversarial)).nonzero().flatten()
    return Targets.of(test, [int(places[int(torch.randint(len(places), (), generator=stream))])], adversarial)


def _own_head(ground: Bed, seed: int) -> nn.Module:
    """The attacker's clean head on the victim's features."""
    trained = train_victim(
        ground.surrogate, ground.splits, _nobody(ground.splits.test), replace(ground.victim, seed=seed + 1000),
        scenario="transfer",
    )  # fmt: skip
    return FrozenExtractor(trained.model)


def _nobody(test: Examples) -> Aim:
    """An aim where nobody attacks: its answer is not looked at."""
    return Targets.of(test, [0], (int(test.labels[0]) + 1) % test.n_classes)


def _defence(settings: Mapping[str, Any]) -> Policy | None:
    name = settings["defence"]
    return None if name == "none" else pinned(DEFENCES[name], **settings.get("options", {}))


def defend(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """One trial: attack, defend, and ask the victim.

    Args:
        settings: ``bed`` (its arguments), ``attack``, ``defence`` and its ``options``; ``controls``, whether the same
            victim is trained on clean data too.
        seed: of the trial.

    Returns:
        ``success`` in percent, ``confidence`` of the adversarial class, ``accuracy`` on clean tests in percent,
        ``seconds`` of the processor for the defended training; ``objective`` of the attack, the share of it that was
        ``brewed`` away, and ``poisons right``, the share of poisons that the attacker's network takes for what they
        are; shares ``dropped`` of all and of ``poisons``, ``selectivity``; and with controls ``clean right`` and
        ``defended right``, whether clean victims see the target rightly, their ``clean confidence`` in the adversarial
        class, and the defence's ``clean accuracy``.
    """
    ground = _bed(settings)
    poisoned = crafted(settings["attack"], tuple(settings["bed"].items()), seed)
    policy = _defence(settings)
    tell_of(ground, poisoned)
    _compile()
    started = time.process_time()
    victim = _victim(ground, poisoned.poison(ground.splits), poisoned.aim, policy, seed)
    metrics = {
        "success": 100 * victim.success,
        "confidence": victim.confidence,
        "accuracy": 100 * victim.test.accuracy,
        "seconds": time.process_time() - started,
        "objective": poisoned.objective,
        "brewed": 1 - poisoned.objective / float(poisoned.trace[0]),
        "poisons right": _poisons_right(ground, poisoned),
    }
    if isinstance(policy, Epic):
        metrics |= _dropped(policy, poisoned, ground.splits.train)
    if settings.get("controls", False):
        clean = _victim(ground, ground.splits, poisoned.aim, None, seed)
        defended = clean if policy is None else _victim(ground, ground.splits, poisoned.aim, _defence(settings), seed)
        metrics |= {
            "clean right": clean.right,
            "defended right": defended.right,
            "clean confidence": clean.confidence,
            "clean accuracy": 100 * defended.test.accuracy,
        }
    return metrics


def several(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Several trials on one bed, for golden cells.

    Args:
        settings: ``bed``, and ``trials``: what else `defend` is given, trial by trial.
        seed: of the trials.

    Returns:
        What `defend` returns, behind the number of the trial.
    """
    metrics: dict[str, float] = {}
    for number, own in enumerate(settings["trials"]):
        trial = defend({"bed": settings["bed"], **own}, seed)
        metrics |= {f"{number} {name}": value for name, value in trial.items()}
    return metrics


def tell_of(ground: Bed, poisoned: PoisonedSet) -> None:
    """Tell the witness about the attacker: its network, its search and its poisons."""
    tell("surrogate", ground.surrogate)
    tell("objective", poisoned.trace)
    tell("perturbations", poisoned.perturbations)


@lru_cache(maxsize=1)
def _compile() -> None:
    """Choose medoids once before any clock runs, since the first choice on a machine compiles."""
    gradient_medoids(torch.eye(8), torch.zeros(8, dtype=torch.int64), 0.25, stream=torch_stream(0, "compile"))


def _poisons_right(ground: Bed, poisoned: PoisonedSet) -> float:
    """Share of the poisons that the attacker's network still takes for what they are."""
    train = poisoned.apply(ground.splits.train)
    places = torch.isin(train.ids, poisoned.ids).nonzero().flatten()
    right = ModelOutputs(ground.surrogate, train).predictions(places) == train.labels[places]
    return float(right.float().mean())


def _victim(ground: Bed, splits: Splits, aim: Aim, policy: Policy | None, seed: int) -> Victim:
    settings = replace(ground.victim, seed=seed)
    victim = train_victim(
        ground.start(seed), splits, aim, settings, scenario=ground.scenario, defence=policy,
        on_images=isinstance(policy, AdversarialPoisoning),
    )  # fmt: skip
    tell("victim", victim.model)
    tell("confidence", victim.confidence)
    if isinstance(policy, Epic):
        tell("losses of the dropped", [float(drop.losses.sum()) for drop in policy.drops])
    return victim


def _dropped(policy: Epic, poisoned: PoisonedSet, train: Examples) -> dict[str, float]:
    gone = torch.cat([torch.empty(0, dtype=torch.int64), *(drop.ids for drop in policy.drops)])
    every, poisons = len(gone) / len(train), float(torch.isin(poisoned.ids, gone).float().mean())
    return {
        "dropped": every,
        "poisons dropped": poisons,
        "selectivity": poisons / every if every else 0.0,
        "first singletons": _share_of_first(policy, poisoned, train),
    }


def _share_of_first(policy: Epic, poisoned: PoisonedSet, train: Examples) -> float:
    """How much more often poisons than clean examples of their class are alone in the first round."""
    first = policy.drops[0].ids
    own = train.ids[train.labels == poisoned.adversarial_class]
    clean = own[~torch.isin(own, poisoned.ids)]
    alone, others = (float(torch.isin(ids, first).float().mean()) for ids in (poisoned.ids, clean))
    return alone / others if others else float(alone > 0) * 1e3


def exchange(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Are the poisons that a defence dropped the ones that work? Train with them alone, and without them alone.

    Args:
        settings: as for `defend`.
        seed: of the trial.

    Returns:
        Success in percent with ``all`` poisons, ``all but Z`` (those that were dropped), ``all but random`` (as many),
        ``only Z`` and ``only R`` (the others); and ``Z``, how many were dropped.
    """
    ground = _bed(settings)
    poisoned = crafted(settings["attack"], tuple(settings["bed"].items()), seed)
    policy = _defence(settings)
    tell_of(ground, poisoned)
    assert isinstance(policy, Epic)
    _victim(ground, poisoned.poison(ground.splits), poisoned.aim, policy, seed)
    gone = torch.cat([torch.empty(0, dtype=torch.int64), *(drop.ids for drop in policy.drops)])
    dropped = torch.isin(poisoned.ids, gone)
    z, r = poisoned.ids[dropped], poisoned.ids[~dropped]
    shuffled = poisoned.ids[torch.randperm(len(poisoned), generator=torch_stream(seed, "exchange"))]
    removed = {"all": z[:0], "all but Z": z, "all but random": shuffled[: len(z)]}
    metrics = {name: _without(ground, poisoned, ids, seed) for name, ids in removed.items()}
    metrics |= {name: _only(ground, poisoned, ids, seed) for name, ids in {"only Z": z, "only R": r}.items()}
    return {**metrics, "Z": float(len(z))}


def _without(ground: Bed, poisoned: PoisonedSet, ids: Tensor, seed: int) -> float:
    """Success when some poisons are taken out of the training set."""
    train = poisoned.apply(ground.splits.train)
    remaining = (~torch.isin(train.ids, ids)).nonzero().flatten()
    splits = replace(ground.splits, train=train.subset(remaining))
    return 100 * _victim(ground, splits, poisoned.aim, None, seed).success


def _only(ground: Bed, poisoned: PoisonedSet, ids: Tensor, seed: int) -> float:
    """Success when only some poisons are there, and the bases of the others are clean."""
    return 100 * _victim(ground, poisoned.only(ids).poison(ground.splits), poisoned.aim, None, seed).success
