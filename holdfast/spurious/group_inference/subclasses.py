"""Clusters of each class that stand in for groups nobody labelled: what GEORGE looks for in a trained model's features.

Sohoni et al. 2020 (https://arxiv.org/abs/2011.12945): a Gaussian mixture or k-means, as many clusters as give the
highest mean over clusters of their silhouettes, and optionally a second round that splits clusters and keeps what is
better separated and harder. Nothing here trains: points, labels and losses in, clusters out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from holdfast.errors import DataError
from holdfast.primitives.kmeans import canonical_order, kmeans
from holdfast.primitives.ranks import rank_in_part
from holdfast.primitives.silhouette import line_coordinates, silhouette
from holdfast.streams import derive_seed, torch_stream

Clustering = Literal["gmm", "kmeans"]

#: Puts points (n, d) into at most k clusters: (points, k) in, int64 of shape (n,) out.
ClusterInto = Callable[[Tensor, int], Tensor]

_SAMPLE = 10_000  # points whose silhouettes are looked at, where they don't lie on a line
_KEEP_ALL_BELOW = 200  # smaller clusters enter a sample whole
_SMALLEST_SHARE, _SMALLEST_COUNT = 0.005, 25  # of a class, that a part of a split must have

_log = logging.getLogger(__name__)


def subclasses(
    points: Tensor,
    labels: Tensor,
    losses: Tensor,
    *,
    clustering: Clustering = "gmm",
    k_max: int = 10,
    overcluster: int = 1,
    seed: int = 0,
) -> Tensor:
    """Cluster each class by itself.

    Args:
        points: reduced features, float of shape (n, d).
        labels: class of each example, int64 of shape (n,).
        losses: of each example, shape (n,); only looked at to overcluster.
        clustering: Gaussian mixture (`gmm`) or `kmeans`.
        k_max: try 2 to this many clusters in each class.
        overcluster: then split every cluster into this many, and keep the parts that `split_further` finds worth it; 1
            doesn't.
        seed: names the random streams.

    Returns:
        Cluster of each example within its class, int64 of shape (n,), from 0 by decreasing size.

    Raises:
        DataError: if lengths disagree or a point is not finite.
    """
    if points.ndim != 2 or not len(points) == len(labels) == len(losses):
        raise DataError(
            f"points have shape {tuple(points.shape)}, and there are {len(labels)} labels and {len(losses)} losses; "
            "give one of each per example"
        )
    if not bool(torch.isfinite(points).all()):
        raise DataError("some features are not finite, so they have no clusters; lower the learning rate")
    clusters = torch.zeros_like(labels)
    for label in torch.unique(labels).tolist():
        members = (labels == label).nonzero().flatten()
        members = members[canonical_order(points[members])]
        mine, named = points[members], derive_seed(seed, "george", label)
        into = partial(_CLUSTERINGS[clustering], seed=named)
        codes, score = choose_clusters(mine, into, k_max, seed=named)
        if overcluster > 1 and int(codes.max()) > 0:
            codes = split_further(mine, codes, losses[members], overcluster, into, seed=named)
        clusters[members] = codes
        _log.info("class %d: mean silhouette %.3f, clusters of %s", label, score, torch.bincount(codes).tolist())
    return clusters


def choose_clusters(points: Tensor, into: ClusterInto, k_max: int, *, seed: int = 0) -> tuple[Tensor, float]:
    """The clusters whose number has the highest mean per-cluster silhouette; the smallest number on ties.

    Args:
        points: float of shape (n, d).
        into: clusters them.
        k_max: try 2 to this many, and no more than there are different points.
        seed: names the stream that draws a sample where there are many points.

    Returns:
        Cluster of each point, int64 of shape (n,), from 0 by decreasing size, and their score. Points that are all the
        same make one cluster, with score 0.
    """
    different = len(torch.unique(points, dim=0))
    best, highest = torch.zeros(len(points), dtype=torch.int64), 0.0
    for k in range(2, min(k_max, different) + 1):
        codes = _by_size(into(points, k))
        if int(codes.max()) == 0:
            continue
        score = mean_cluster_silhouette(points, codes, seed=seed)
        if int(best.max()) == 0 or score > highest + 1e-12:
            best, highest = codes, score
    return best, highest


def mean_cluster_silhouette(points: Tensor, clusters: Tensor, *, seed: int = 0) -> float:
    """The mean over clusters of their mean silhouettes, so that a small cluster counts as much as a large one.

    Args:
        points: float of shape (n, d).
        clusters: cluster of each point, int64 of shape (n,), numbered from 0 without gaps, at least two.
        seed: names the stream that draws a sample where there are many points.

    Returns:
        From -1 to 1.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [0.0], [0.0], [0.0], [9.0], [18.0]])
        >>> mean_cluster_silhouette(points, torch.tensor([0, 0, 0, 0, 1, 1]))  # the mean over points is 0.75
        0.625
    """
    sampled = _sample(points, clusters, seed)
    scores, codes = silhouette(points[sampled], clusters[sampled]), clusters[sampled]
    return float((torch.bincount(codes, scores) / torch.bincount(codes)).mean())


def split_further(
    points: Tensor, clusters: Tensor, losses: Tensor, factor: int, into: ClusterInto, *, seed: int = 0
) -> Tensor:
    """Split every cluster and keep those parts that are better separated and harder than where they come from.

    A part becomes a cluster of its own if the mean silhouette of its points rises by the split, its mean loss is above
    that of the cluster, and it has at least 0.5 % of the points and 25 of them. The other parts stay together.

    Args:
        points: of one class, float of shape (n, d).
        clusters: of each point, int64 of shape (n,), numbered from 0 without gaps, at least two.
        losses: of each point, shape (n,).
        factor: parts per cluster.
        into: clusters them.
        seed: names the stream that draws a sample where there are many points.

    Returns:
        Cluster of each point, int64 of shape (n,), from 0 by decreasing size.
    """
    least = max(_SMALLEST_SHARE * len(points), _SMALLEST_COUNT)
    parts = clusters * factor
    for cluster, size in enumerate(torch.bincount(clusters).tolist()):
        if size > least:
            members = (clusters == cluster).nonzero().flatten()
            parts[members] += into(points[members], min(factor, size))
    sampled = _sample(points, clusters, seed)
    before, after = (silhouette(points[sampled], some[sampled]) for some in (clusters, parts))
    result = clusters.clone()
    for part in torch.unique(parts).tolist():
        inside, sampled_inside = parts == part, parts[sampled] == part
        if (
            int(inside.sum()) >= least
            and float(losses[inside].mean()) > float(losses[clusters == part // factor].mean())
            and float(after[sampled_inside].mean()) > float(before[sampled_inside].mean())
        ):
            result[inside] = int(result.max()) + 1
    return _by_size(result)


def _gaussian_mixture(points: Tensor, k: int, *, seed: int) -> Tensor:
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415 - takes a second, and only this clustering needs it

    model: Any = GaussianMixture(k, n_init=3, random_state=derive_seed(seed, "mixture", k) % 2**32)
    return torch.from_numpy(model.fit_predict(points.double().numpy()))


def _kmeans(points: Tensor, k: int, *, seed: int) -> Tensor:
    return kmeans(points, k, seed=seed).clusters


_CLUSTERINGS = {"gmm": _gaussian_mixture, "kmeans": _kmeans}


def _by_size(clusters: Tensor) -> Tensor:
    """The clusters numbered from 0 by decreasing size."""
    _, codes, sizes = torch.unique(clusters, return_inverse=True, return_counts=True)
    rank: Tensor = sizes.argsort(descending=True, stable=True).argsort()
    return rank[codes]


def _sample(points: Tensor, clusters: Tensor, seed: int) -> Tensor:
    """Positions whose silhouettes stand for all: all of them if few or on a line, else evenly within each cluster."""
    everything = torch.arange(len(points))
    if len(points) <= _SAMPLE or line_coordinates(points) is not None:
        return everything
    sizes = torch.bincount(clusters)
    base = sizes.clamp(max=_KEEP_ALL_BELOW)
    quota = base + (_SAMPLE - int(base.sum())) * (sizes - base) // (sizes - base).sum()
    shuffled = torch.randperm(len(points), generator=torch_stream(seed, "silhouettes"))
    return shuffled[rank_in_part(clusters[shuffled]) < quota[clusters[shuffled]]]
