"""Filters on the features of a network that was trained on everything: who looks out of place?

Each takes inputs of the last layer and labels and says whom to keep. They know nothing of training; the policies of
`holdfast.poisoning.defenses.filtering` train a first network for them and start again on what they keep.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.primitives.kmeans import kmeans

_BLOCK = 2**24  # distances held at once


def deep_knn_keeps(features: Tensor, labels: Tensor, neighbours: int) -> Tensor:
    """Keep whoever has a label that at least half of its nearest neighbours share (Peri et al. 2020).

    https://arxiv.org/abs/1909.13374.

    Args:
        features: float of shape (n, d).
        labels: int64 of shape (n,).
        neighbours: how many others to ask; at most all of them.

    Returns:
        bool of shape (n,).

    Raises:
        ConfigError: if there is nobody to ask.
    """
    n = len(features)
    k = min(neighbours, n - 1)
    if k < 1:
        raise ConfigError(f"{neighbours} neighbours of {n} examples can't be compared; give at least 1 of at least 2")
    square = features.square().sum(1)
    keep = torch.empty(n, dtype=torch.bool)
    for rows in torch.split(torch.arange(n), max(1, _BLOCK // n)):
        distance = square - 2 * features[rows] @ features.T
        distance[torch.arange(len(rows)), rows] = torch.inf
        nearest = distance.topk(k, dim=1, largest=False).indices
        same = (labels[nearest] == labels[rows, None]).sum(1)
        keep[rows] = 2 * same >= k
    return keep


def spectral_keeps(features: Tensor, labels: Tensor, removed: int) -> Tensor:
    """Remove from every class those who lie farthest along its main direction (Tran, Li and Madry 2018).

    https://arxiv.org/abs/1811.00636.

    Args:
        features: float of shape (n, d).
        labels: int64 of shape (n,).
        removed: how many of each class.

    Returns:
        bool of shape (n,).

    Raises:
        ConfigError: if a class has no more than that.
    """
    keep = torch.ones(len(features), dtype=torch.bool)
    for label in torch.unique(labels).tolist():
        members = (labels == label).nonzero().flatten()
        if len(members) <= removed:
            raise ConfigError(
                f"{removed} of every class are to be removed and class {label} has {len(members)}; expect fewer poisons"
            )
        centred = features[members] - features[members].mean(0)
        direction = torch.linalg.svd(centred, full_matrices=False).Vh[0]
        scores = (centred @ direction).square()
        keep[members[scores.argsort(descending=True, stable=True)[:removed]]] = False
    return keep


def activation_keeps(features: Tensor, labels: Tensor, *, seed: int = 0) -> Tensor:
    """Split every class in two by its features and remove the smaller part (Chen et al. 2019).

    https://arxiv.org/abs/1811.03728.

    The original reduces features to ten independent components first; this comparison uses them as they are.

    Args:
        features: float of shape (n, d).
        labels: int64 of shape (n,).
        seed: of k-means.

    Returns:
        bool of shape (n,).
    """
    keep = torch.ones(len(features), dtype=torch.bool)
    for label in torch.unique(labels).tolist():
        members = (labels == label).nonzero().flatten()
        keep[members] = kmeans(features[members], 2, seed=seed).clusters == 0  # clusters are numbered by size
    return keep
