"""Exemplar clustering: k of the points stand for all, and every point belongs to the most similar of them by cosine.

The exemplars are chosen by greedy facility location. It is SPARE's k-median alternative to k-means for large data: no
iterations, no restarts, and one run to k gives the clusters for every smaller number too. Many points choose among a
uniform sample of themselves, so that time and memory are linear in n; all points still vote.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.primitives.facility_location import Selection, facility_location
from holdfast.streams import torch_stream


@dataclass(frozen=True, eq=False)
class ExemplarClustering:
    """Which point belongs to which exemplar's cluster.

    Attributes:
        clusters: cluster of each point, int64 of shape (n,), numbered from 0 by decreasing size.
        exemplars: the point that each cluster is around, int64 of shape (k,).
    """

    clusters: Tensor
    exemplars: Tensor

    @property
    def k(self) -> int:
        """How many clusters there are."""
        return len(self.exemplars)


def exemplar_clustering(points: Tensor, k: int, *, seed: int = 0, limit: int = 1000) -> ExemplarClustering:
    """Cluster points around k of them, by cosine similarity.

    Args:
        points: float of shape (n, d).
        k: how many clusters; fewer come out where points have fewer different directions.
        seed: names the random stream of the sample.
        limit: choose the exemplars among this many points, drawn uniformly, where there are more.

    Returns:
        The clustering.

    Raises:
        ConfigError: if k is less than 1.
        DataError: if there are no points, or some are not finite.

    Example:
        >>> import torch
        >>> exemplar_clustering(torch.tensor([[0.0, 1.0], [9.0, 0.0], [9.0, 1.0], [8.0, 1.0]]), 2).clusters.tolist()
        [1, 0, 0, 0]
    """
    return exemplar_path(points, k, seed=seed, limit=limit)[-1]


def exemplar_path(points: Tensor, k_max: int, *, seed: int = 0, limit: int = 1000) -> tuple[ExemplarClustering, ...]:
    """The clusterings around 1, 2, ..., k_max exemplars, for the price of the last.

    Each adds one exemplar to those before it and equals what `exemplar_clustering` gives for its number.

    Args:
        points: float of shape (n, d).
        k_max: the largest number of clusters.
        seed: names the random stream of the sample.
        limit: choose the exemplars among this many points, drawn uniformly, where there are more.

    Returns:
        A clustering per number, from 1 on. It ends early where points have fewer different directions.
    """
    n = len(points)
    sample = torch.randperm(n, generator=torch_stream(seed, "exemplars"))[: max(limit, k_max)]
    selection = facility_location(points, min(k_max, max(1, n)), metric="cosine", candidates=sample)
    useful = max(1, int((selection.gains > 0).sum()))
    return tuple(_described(selection.first(k)) for k in range(1, useful + 1))


def _described(selection: Selection) -> ExemplarClustering:
    """Number the clusters by decreasing size, the earlier exemplar first among equals; leave out empty ones."""
    sizes = selection.weights
    order = sizes.argsort(descending=True, stable=True)[: int((sizes > 0).sum())]
    number = torch.empty_like(selection.chosen)
    number[order] = torch.arange(len(order))
    return ExemplarClustering(number[selection.assignment], selection.chosen[order])
