"""What SPARE's tables compute besides `papers.common.cells.train`: clusters of one network for another, and alone.

Two policies are here that no user needs: they are what the document's argument is measured against.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.errors import HoldfastWarning
from holdfast.models.registry import build
from holdfast.papers.common.cells import splits_of, train_with
from holdfast.papers.engine.pins import options, pinned
from holdfast.papers.engine.witness import tell
from holdfast.spurious import ClusterPartition, Spare, balance_weights
from holdfast.training import Context, Plan, Policy, Training, fit


@dataclass(kw_only=True)
class ConfidenceOnly(Spare):
    """SPARE on the probability of the true class alone, which can't tell one minority from another."""

    def _separate(self, outputs: Tensor, labels: Tensor, context: Context, epoch: int) -> ClusterPartition:
        own = outputs.gather(1, labels[:, None])
        return super()._separate(own, labels, context, epoch)


@dataclass(frozen=True)
class MergedMinorities(Policy):
    """Balance the majority of every class against all its minorities together, by true groups."""

    name: ClassVar[str] = "merged-minorities"

    def update(self, context: Context) -> Plan:
        """Sampling weights by class and whether the colour is the class's own."""
        labels, colours = context.examples.labels, context.examples.attributes
        assert colours is not None
        return Plan(sample_weight=balance_weights(2 * labels + (labels == colours)))


def train_variant(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """`holdfast.papers.common.cells.train` with the policy that ``settings["variant"]`` names."""
    confidence = ConfidenceOnly(**options(Spare, {"infer_epoch": 2}))
    policies: dict[str, Policy] = {"confidence-only": confidence, "merged-minorities": MergedMinorities()}
    return train_with(policies[settings["variant"]], settings, seed)


def train_in_two_networks(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """`holdfast.papers.common.cells.train`, with the clusters of another network.

    Args:
        settings: as for `train`, and ``inference``: ``name`` and ``weights`` of the network and the ``epochs`` after
            which it is clustered.
        seed: as for `train`.

    Returns:
        As for `train`.
    """
    with TemporaryDirectory() as folder:
        saved = Path(folder) / "clusters"
        _early_clusters(settings, settings["inference"], seed).save(saved)
        return train_with(pinned(Spare, saved=saved), settings, seed)


def silhouettes_by_class(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """The silhouette and the power of each class after SPARE's first stage.

    Args:
        settings: as for `train`, for SPARE.
        seed: as for `train`.

    Returns:
        ``silhouette C``, ``lambda C`` and ``k C`` for each class C.
    """
    chosen = options(Spare, settings["options"].get("spare", {}))
    partition = _early_clusters(settings, {**settings["model"], "epochs": chosen["infer_epoch"]}, seed)
    result = {}
    for label, separation in partition.classes.items():
        score = separation.silhouette
        result[f"silhouette {label}"] = 0.0 if score is None else score.value
        result[f"lambda {label}"] = separation.lambda_
        result[f"k {label}"] = float(separation.k)
    tell("clusters", result)
    return result


def _early_clusters(settings: Mapping[str, Any], network: Mapping[str, Any], seed: int) -> ClusterPartition:
    """What a network's first epochs give; SPARE's second stage is cut to the one epoch that training has at least."""
    splits = splits_of(settings, seed)
    train = splits.train
    model = build(network["name"], train.input_shape, train.n_classes, seed=seed, weights=network.get("weights"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = settings["options"].get("spare", {})
    policy = pinned(Spare, **{**given, "infer_epoch": network["epochs"]})
    how = pinned(Training, **{**settings["training"], "epochs": 1, "device": device}, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        result = fit(model, splits, policy, how)
    assert policy.partition is not None
    tell("first loss", [epoch["loss"] for epoch in result.history])
    tell("draws", policy.partition.p)
    return policy.partition
