"""A cell of the beds: a method, or the choice between them, trained on a bed and given its verdict."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from holdfast.auto.candidates import CANDIDATES, criterion_for
from holdfast.auto.choosing import choose
from holdfast.auto.knowledge import knowledge_of
from holdfast.auto.options import Auto
from holdfast.errors import HoldfastWarning
from holdfast.models.registry import build
from holdfast.papers.common.cells import pinned_method
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.papers.health.drawing import splits_of
from holdfast.training import Training, fit

#: Verdicts as numbers, in the order of their weight.
VERDICTS = ("ok", "doubtful", "failed")


def train_on_bed(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train on a bed and say how its groups fare and what the checks say.

    The checks see what a user's run would see: no reference, and no attributes but those that the bed makes known.

    Args:
        settings: ``bed``, ``method`` (a name, or ``auto``), ``model``, ``training`` (fields of `Training`), and for
            ``auto`` its options, ``auto``.
        seed: of the bed, the model and every draw.

    Returns:
        In percent ``worst_group`` and ``average``; ``verdict`` as a place in `VERDICTS`; ``train_seconds`` of the
        processor. For ``auto`` also ``choosing``, the seconds of its tries, and ``chosen``, the method's place among
        the candidates.
    """
    splits = splits_of(settings["bed"], seed)
    known = knowledge_of(splits)
    training = pinned(Training, **settings["training"], select_by=criterion_for(known), seed=seed)

    def new_model() -> Any:
        return build(settings["model"], splits.train.input_shape, splits.train.n_classes, seed=seed)

    found, method = dict[str, float](), settings["method"]
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        if method == "auto":
            choice = choose(new_model, splits, training, pinned(Auto, **settings["auto"]), build=pinned_method)
            method = choice.method
            found = {"choosing": choice.seconds, "chosen": float(CANDIDATES[known].index(method))}
        result = fit(new_model(), splits, pinned_method(method), training)
    tell("loss", [epoch["loss"] for epoch in result.history])
    tell("weights", result.model)
    return {
        "worst_group": 100 * result.test.worst_accuracy,
        "average": 100 * result.test.accuracy,
        "verdict": float(VERDICTS.index(result.health.verdict)),
        "train_seconds": time.process_time() - started,
        **found,
    }
