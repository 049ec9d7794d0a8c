"""What cells compute. `train` is the one for every table of trained models: data, model, method, scores by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from holdfast.data import catalog
from holdfast.methods import build_method
from holdfast.models.registry import build
from holdfast.training import GroupReport, Training, fit


def train(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train a model with a method and report how the groups of the test set fare.

    Args:
        settings: ``data`` (name and options), ``model`` (name, and ``weights`` to start from), ``method`` (names joined
            by ``+``), ``options`` (per method, optional), ``groups`` (the method that infers them, optional),
            ``training`` (fields of `Training`; the device ``auto`` is a GPU where there is one), and ``average``, which
            of the averages the table prints: ``accuracy``, ``train_mix`` or ``group_mean``.
        seed: of the model's start and of every draw; the data stay as they are.

    Returns:
        In percent ``worst_group``, ``average`` (the one the table prints), ``accuracy`` (the test mix), ``train_mix``
        and ``group_mean`` of the epoch chosen on validation data, ``worst_group_last`` and ``average_last`` after the
        last epoch; ``best_epoch`` from 1; ``full_epochs``, passes over the training set until then; and
        ``train_seconds``, without evaluation.
    """
    data = dict(settings["data"])
    splits = catalog.load(data.pop("name"), **data)
    chosen, train_set = settings["model"], splits.train
    model = build(chosen["name"], train_set.input_shape, train_set.n_classes, seed=seed, weights=chosen.get("weights"))
    how = dict(settings["training"])
    if how.get("device") == "auto":
        how["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    method = build_method(settings["method"], settings.get("options"), settings.get("groups"))
    result = fit(model, splits, method, Training(**how, seed=seed))
    best, last, average = _percents(result.test), _percents(result.test_last), settings["average"]
    return {
        "average": best[average],
        **best,
        "worst_group_last": last["worst_group"],
        "average_last": last[average],
        "best_epoch": result.best_epoch + 1,
        "full_epochs": result.best_full_epochs,
        "train_seconds": result.seconds["train"] + result.seconds["policy"],
    }


def _percents(report: GroupReport) -> dict[str, float]:
    scores = {"worst_group": report.worst_accuracy, "accuracy": report.accuracy, "group_mean": report.group_mean}
    if report.train_mix is not None:
        scores["train_mix"] = report.train_mix
    return {name: 100 * score for name, score in scores.items()}
