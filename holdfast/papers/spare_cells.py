"""What Tables 5.2 and 5.3 of SPARE's chapter compute: clusters of one network for another, and clusters alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from holdfast.data import catalog
from holdfast.errors import HoldfastWarning
from holdfast.models.registry import build
from holdfast.papers.cells import train_with
from holdfast.spurious import Partition, Spare
from holdfast.spurious.spare import Output
from holdfast.training import Training, fit


def train_in_two_networks(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """`holdfast.papers.cells.train`, with the clusters of another network.

    Args:
        settings: as for `train`, and ``inference``: ``name`` and ``weights`` of the network and the ``epochs`` after
            which it is clustered.
        seed: as for `train`.

    Returns:
        As for `train`.
    """
    with TemporaryDirectory() as folder:
        saved = Path(folder) / "clusters"
        _early_clusters(settings, settings["inference"], "softmax", seed).save(saved)
        return train_with(Spare(saved=saved), settings, seed)


def silhouettes_by_class(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """The silhouette and the power of each class after SPARE's first stage.

    Args:
        settings: as for `train`, for SPARE.
        seed: as for `train`.

    Returns:
        ``silhouette C``, ``lambda C`` and ``k C`` for each class C.
    """
    options = settings["options"].get("spare", {})
    first = {**settings["model"], "epochs": options.get("infer_epoch", Spare.infer_epoch)}
    found = _early_clusters(settings, first, options.get("output", "softmax"), seed)
    result = {}
    for label, separation in found.classes.items():
        score = separation.silhouette
        result[f"silhouette {label}"] = 0.0 if score is None else score.value
        result[f"lambda {label}"] = separation.lambda_
        result[f"k {label}"] = float(separation.k)
    return result


def _early_clusters(settings: Mapping[str, Any], network: Mapping[str, Any], output: Output, seed: int) -> Partition:
    """What a network's first epochs give; SPARE's second stage is cut to the one epoch that training has at least."""
    data = dict(settings["data"])
    splits = catalog.load(data.pop("name"), **data)
    train = splits.train
    model = build(network["name"], train.input_shape, train.n_classes, seed=seed, weights=network.get("weights"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = Spare(infer_epoch=network["epochs"], output=output)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        fit(model, splits, policy, Training(**{**settings["training"], "epochs": 1, "device": device}, seed=seed))
    assert policy.partition is not None
    return policy.partition
