"""What cells compute. `train` is the one for every table of trained models: data, model, method, scores by group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch

from holdfast.data import Examples, Splits, catalog
from holdfast.errors import HoldfastWarning
from holdfast.methods import METHODS, build_method
from holdfast.models.registry import build
from holdfast.papers.engine.pins import options, pinned
from holdfast.papers.engine.witness import tell
from holdfast.spurious import InferGroups, Spare
from holdfast.spurious.group_inference.quality import judge_groups
from holdfast.training import Chain, GroupReport, Policy, Training, fit


def train(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train a model with a method and report how the groups of the test set fare.

    Args:
        settings: ``data`` (name and options), ``model`` (name, and ``weights`` to start from), ``method`` (names joined
            by ``+``), ``options`` (per method, optional), ``groups`` (the method that infers them, optional),
            ``training`` (fields of `Training`; the device ``auto`` is a GPU where there is one), and ``average``, which
            of the averages the table prints: ``accuracy``, ``train_mix`` or ``group_mean``. With ``data_by_seed`` the
            data are drawn by the seed too.
        seed: of the model's start and of every draw.

    Returns:
        In percent ``worst_group``, ``average`` (the one the table prints), ``accuracy`` (the test mix), ``train_mix``
        and ``group_mean`` of the epoch chosen on validation data, ``worst_group_last`` and ``average_last`` after the
        last epoch; ``best_epoch`` from 1; ``full_epochs``, passes over the training set until then; ``passes``, those
        of the whole training; and ``train_seconds``, without evaluation. Where SPARE inferred groups and true ones are
        known also ``precision`` and ``recall`` of the minorities (the smallest of a class), the smallest
        ``silhouette``, the smallest and the median ``k``, and the epoch ``inferred_after``.
    """
    policy = pinned_method(settings["method"], settings.get("options"), settings.get("groups"))
    return train_with(policy, settings, seed)


def pinned_method(method: str, given: Mapping[str, Any] | None = None, groups: str | None = None) -> Policy:
    """`build_method`, with every option that is not given as it is pinned."""
    names = [*method.split("+"), *([groups] if groups else [])]
    return build_method(method, {name: options(METHODS[name], (given or {}).get(name, {})) for name in names}, groups)


def pinned_splits(name: str, **given: Any) -> Splits:
    """A data set, with every option that is not given as it is pinned."""
    return catalog.load(name, **options(catalog.find(name), given))


def splits_of(settings: Mapping[str, Any], seed: int) -> Splits:
    """The data set of a cell, drawn by the cell's seed where its settings ask for that."""
    data = dict(settings["data"])
    if settings.get("data_by_seed"):
        data["seed"] = seed
    return pinned_splits(data.pop("name"), **data)


def train_with(policy: Policy, settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """`train`, with a policy that has no name."""
    splits = splits_of(settings, seed)
    chosen, train_set = settings["model"], splits.train
    model = build(chosen["name"], train_set.input_shape, train_set.n_classes, seed=seed, weights=chosen.get("weights"))
    how = dict(settings["training"])
    if how.get("device") == "auto":
        how["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        result = fit(model, splits, policy, pinned(Training, **how, seed=seed))
    tell("loss", [epoch["loss"] for epoch in result.history])
    tell("weights", result.model)
    best, last, average = _percents(result.test), _percents(result.test_last), settings["average"]
    return {
        "average": best[average],
        **best,
        "worst_group_last": last["worst_group"],
        "average_last": last[average],
        "best_epoch": result.best_epoch + 1,
        "full_epochs": result.best_full_epochs,
        "passes": sum(epoch["examples"] for epoch in result.history) / len(splits.train),
        "train_seconds": result.seconds["train"] + result.seconds["policy"],
        **_inference(policy, splits.train),
    }


def _inference(policy: Policy, examples: Examples) -> dict[str, float]:
    """How well SPARE's clusters match the true groups, where it inferred any."""
    members = policy.members if isinstance(policy, Chain) else (policy,)
    sources = [member.source if isinstance(member, InferGroups) else member for member in members]
    partition = next((source.partition for source in sources if isinstance(source, Spare)), None)
    if partition is None or examples.attributes is None:
        return {}
    judged = judge_groups(partition.clusters, examples.labels, examples.attributes, majority=None)
    scores = [separation.silhouette for separation in partition.classes.values()]
    numbers = sorted(separation.k for separation in partition.classes.values())
    return {
        "precision": judged.min_precision or 0.0,
        "recall": judged.min_recall or 0.0,
        "silhouette": min((score.value for score in scores if score is not None), default=0.0),
        "k": float(numbers[0]),
        "k_median": float(median(numbers)),
        "inferred_after": float(partition.about.get("infer_epoch") or 0),
    }


def _percents(report: GroupReport) -> dict[str, float]:
    scores = {"worst_group": report.worst_accuracy, "accuracy": report.accuracy, "group_mean": report.group_mean}
    if report.train_mix is not None:
        scores["train_mix"] = report.train_mix
    return {name: 100 * score for name, score in scores.items()}
