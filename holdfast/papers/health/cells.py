"""A cell of the beds: a method, or the choice between them, trained on a bed and given its verdict."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from holdfast.auto.candidates import CANDIDATES, criterion_for
from holdfast.auto.choosing import PLAIN, choose
from holdfast.auto.knowledge import knowledge_of
from holdfast.auto.options import Auto
from holdfast.errors import HoldfastWarning
from holdfast.models.registry import build
from holdfast.papers.common.cells import pinned_method
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.papers.health.drawing import splits_of
from holdfast.training import FitResult, GroupReport, Policy, Training, fit, predict, train_plain
from holdfast.training.health.check import Health, Verdict
from holdfast.training.health.general import AIM, WORST_GROUP, of_worst_group

#: Verdicts as numbers, in the order of their weight.
VERDICTS: tuple[Verdict, ...] = ("ok", "doubtful", "failed")


def train_on_bed(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train on a bed and say how its groups fare and what the checks say.

    The checks see what a user's run would see: no attributes but those that the bed makes known, and plain training
    where `holdfast fit` trains it beside by default, which is for methods that guess at groups.

    Args:
        settings: ``bed``, ``method`` (a name, or ``auto``) with its ``options`` if it has some, ``model``, ``training``
            (fields of `Training`), and for ``auto`` its options, ``auto``.
        seed: of the bed, the model and every draw.

    Returns:
        In percent ``worst_group`` and ``average``; as places in `VERDICTS` the ``verdict`` that a run gives by
        default, ``alone`` that with ``--reference none``, and ``beside`` that with ``--reference beside``;
        ``train_seconds`` of the processor, those of the plain training beside not among them. For ``auto`` also
        ``choosing``, the seconds of its tries, and ``chosen``, the method's place among the candidates.
    """
    splits, judged = splits_of(settings["bed"], seed)
    known = knowledge_of(splits)
    training = pinned(Training, **settings["training"], select_by=criterion_for(known), seed=seed)

    def new_model() -> Any:
        return build(settings["model"], splits.train.input_shape, splits.train.n_classes, seed=seed)

    found, method = dict[str, float](), settings["method"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        if method == "auto":
            choice = choose(new_model, splits, training, pinned(Auto, **settings["auto"]), build=pinned_method)
            method = choice.method
            found = {"choosing": choice.seconds, "chosen": float(CANDIDATES[known].index(method))}
        plain = None if method == PLAIN else _plain(settings["bed"], settings["model"], training)
        policy = pinned_method(method, {method: settings["options"]} if "options" in settings else None)
        started = time.process_time()
        result = fit(new_model(), splits, policy, training, reference=plain if policy.guesses_groups else None)
        seconds = time.process_time() - started + found.get("choosing", 0.0)
    report = GroupReport.of(predict(result.model, judged).predicted, judged)
    tell("loss", [epoch["loss"] for epoch in result.history])
    tell("weights", result.model)
    return {
        "worst_group": 100 * report.worst_accuracy,
        "average": 100 * report.accuracy,
        "verdict": _place(result.health.verdict),
        "alone": _place(judged_beside(None, result, policy)),
        "beside": _place(judged_beside(plain, result, policy)),
        "train_seconds": seconds,
        **found,
    }


def judged_beside(reference: GroupReport | None, result: FitResult, policy: Policy) -> Verdict:
    """The verdict that the run would have with another reference, or with none."""
    others = [finding for finding in result.health.findings if finding.check not in (WORST_GROUP.name, AIM.name)]
    return Health.of([*others, *of_worst_group(result.test, reference, aims=policy.promises_worst_group)]).verdict


@cache
def _plain(bed: str, model: str, training: Training) -> GroupReport:
    """Plain training on a bed, once per process: every method of the same seed is compared with it."""
    splits, _ = splits_of(bed, training.seed)
    network = build(model, splits.train.input_shape, splits.train.n_classes, seed=training.seed)
    return train_plain(network, splits, training)


def _place(verdict: Verdict) -> float:
    return float(VERDICTS.index(verdict))
