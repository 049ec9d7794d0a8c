"""Separate the groups of each class by what an early model makes of them: stage 1 of SPARE.

Section 5.4 and Algorithm 4 of the dissertation (https://escholarship.org/uc/item/0399v1qw). Each class's outputs are
clustered, the number of clusters is the one with the highest silhouette, and the examples are given the probabilities
with which stage 2 draws them. Nothing here trains: outputs and labels in, a `ClusterPartition` out.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError, HoldfastWarning, nearest
from holdfast.primitives.exemplars import exemplar_clustering
from holdfast.primitives.kmeans import canonical_order, kmeans
from holdfast.primitives.silhouette import SilhouetteScore, silhouette_score
from holdfast.spurious.group_inference.partition import ClusterPartition, Separation
from holdfast.streams import derive_seed

ClassMass = Literal["equal", "natural"]
Clustering = Literal["kmeans", "exemplars"]


class _Clustered(Protocol):
    """What a clustering gives: a number per point, the largest cluster first."""

    @property
    def clusters(self) -> Tensor: ...

    @property
    def k(self) -> int: ...


class _Clusterer(Protocol):
    def __call__(self, points: Tensor, k: int, *, seed: int = 0) -> _Clustered: ...


_CLUSTERINGS: dict[Clustering, _Clusterer] = {"kmeans": kmeans, "exemplars": exemplar_clustering}
_DOUBTFUL = 0.7

_log = logging.getLogger(__name__)


def separate(
    outputs: Tensor,
    labels: Tensor,
    *,
    k_max: int = 5,
    k: int | None = None,
    clustering: Clustering = "kmeans",
    across_classes: bool = False,
    tau: float = 0.9,
    lambda_high: float = 2.0,
    class_mass: ClassMass = "equal",
    seed: int = 0,
    ids: Tensor | None = None,
) -> ClusterPartition:
    """Cluster the outputs of each class and find the sampling probabilities that even the clusters.

    Nothing depends on the order of the examples. Warns where a class has constant outputs, which stay one cluster, and
    where a silhouette is under 0.7, which in practice marks a majority that was split in two.

    Args:
        outputs: of the model early in training, float of shape (n, d): the whole softmax vector, say.
        labels: true class of each example, int64 of shape (n,).
        k_max: try 2 to this many clusters and keep the number with the highest silhouette, the smallest on ties. A
            class with fewer different outputs gets at most as many clusters.
        k: this many clusters in every class instead; 1 balances classes and nothing else.
        clustering: `kmeans`, or `exemplars` chosen by facility location on cosine similarities.
        across_classes: cluster all examples together and cut the clusters along the classes, as the SpuCo package does
            for CelebA; the silhouette is then that of the whole set.
        tau: silhouette from which clusters count as well separated.
        lambda_high: power for the classes whose clusters are less well separated; it is 1 for the others.
        class_mass: draw classes equally often, or as often as they occur (`natural`).
        seed: names the random streams.
        ids: of the examples; their positions by default.

    Returns:
        The partition.

    Raises:
        DataError: if shapes disagree, there are no examples, or an output is not finite.
    """
    _check(outputs, labels)
    clusters = torch.zeros_like(labels)
    classes: dict[int, Separation] = {}
    choices = range(2, k_max + 1) if k is None else range(k, k + 1)
    present, counts = torch.unique(labels, return_counts=True)
    by_class = torch.split(labels.argsort(stable=True), counts.tolist())
    common = _choose_clusters(outputs, choices, clustering, derive_seed(seed, "spare")) if across_classes else None
    for label, members in zip(present.tolist(), by_class, strict=True):
        if common is None:
            codes, curve = _choose_clusters(outputs[members], choices, clustering, derive_seed(seed, "spare", label))
        else:
            codes, curve = _cut(*common, members)
        clusters[members], chosen = codes, int(codes.max()) + 1
        separated = chosen == 1 or curve[chosen].value >= tau
        classes[label] = Separation(chosen, 1.0 if separated else lambda_high, curve)
        _log_class(label, classes[label], clusters[members])
    _warn(classes, expected=k != 1)
    p = sampling_probabilities(labels, clusters, {c: codes.lambda_ for c, codes in classes.items()}, class_mass)
    about = {"k_max": k_max, "k": k, "tau": tau, "lambda_high": lambda_high, "class_mass": class_mass, "seed": seed}
    return ClusterPartition(torch.arange(len(labels)) if ids is None else ids, labels, clusters, p, classes, about)


def sampling_probabilities(
    labels: Tensor, clusters: Tensor, lambda_: Mapping[int, float], class_mass: ClassMass = "equal"
) -> Tensor:
    """Draw an example in proportion to its cluster's size to the power of minus lambda, within its class.

    So cluster V of class c has the share of its class that is proportional to ``|V| ** (1 - lambda)``: with lambda 0
    clusters are drawn as they are, with 1 equally often, with 2 the small ones more often than the large.

    Args:
        labels: class of each example, int64 of shape (n,).
        clusters: cluster of each within its class, int64 of shape (n,).
        lambda_: the power by class.
        class_mass: draw classes equally often, or as often as they occur (`natural`).

    Returns:
        float64 of shape (n,) that sums to one.

    Example:
        >>> import torch
        >>> y, cluster = torch.tensor([1, 1, 1, 0]), torch.tensor([0, 0, 1, 0])
        >>> sampling_probabilities(y, cluster, {0: 1.0, 1: 1.0}).tolist()
        [0.125, 0.125, 0.25, 0.5]
    """
    if class_mass not in get_args(ClassMass):
        raise ConfigError(f"there is no class_mass {class_mass!r}{nearest(class_mass, get_args(ClassMass))}")
    counts = torch.bincount(labels).to(torch.float64)
    power = torch.zeros_like(counts)
    for label, value in lambda_.items():
        power[label] = value
    width = int(clusters.max()) + 1
    cell = labels * width + clusters
    sizes = torch.bincount(cell, minlength=len(counts) * width).view(-1, width).to(torch.float64)
    shares = torch.where(sizes > 0, torch.pow(sizes, 1 - power[:, None]), 0.0)
    mass = counts if class_mass == "natural" else (counts > 0).to(torch.float64)
    scale = mass / mass.sum() / shares.sum(1)
    return (scale[:, None] * shares / sizes).flatten()[cell]


def _choose_clusters(
    points: Tensor, choices: range, clustering: Clustering, seed: int
) -> tuple[Tensor, dict[int, SilhouetteScore]]:
    """The clusters (n,) whose number has the highest silhouette, and the silhouette of every number tried."""
    best, curve = torch.zeros(len(points), dtype=torch.int64), dict[int, SilhouetteScore]()
    if _constant(points):
        return best, curve
    order = canonical_order(points)
    points = points[order]
    for k in choices:
        tried = _CLUSTERINGS[clustering](points, k, seed=seed)
        if tried.k == 1 or tried.k in curve:
            break
        curve[tried.k] = silhouette_score(points, tried.clusters, seed=seed)
        highest = max(curve, key=lambda number: (round(curve[number].value, 12), -number))
        if highest == tried.k:
            best[order] = tried.clusters
    return best, curve


def _cut(
    clusters: Tensor, curve: Mapping[int, SilhouetteScore], members: Tensor
) -> tuple[Tensor, dict[int, SilhouetteScore]]:
    """The part of common clusters that lies in a class, numbered by decreasing size, and the silhouette of all."""
    present, codes, sizes = torch.unique(clusters[members], return_inverse=True, return_counts=True)
    number = torch.empty_like(present)
    number[sizes.argsort(descending=True, stable=True)] = torch.arange(len(present))
    score = curve.get(int(clusters.max()) + 1)
    return number[codes], {} if score is None or len(present) == 1 else {len(present): score}


def _constant(points: Tensor) -> bool:
    """Whether all points are the same but for the rounding of their type."""
    extent = float((points.amax(0) - points.amin(0)).max())
    return extent <= 4 * torch.finfo(points.dtype).eps * float(points.abs().max())


def _check(outputs: Tensor, labels: Tensor) -> None:
    if outputs.ndim != 2 or labels.shape != outputs.shape[:1] or len(labels) == 0:
        raise DataError(
            f"outputs have shape {tuple(outputs.shape)} and labels {tuple(labels.shape)}; give (n, d) and (n,)"
        )
    broken = (~torch.isfinite(outputs).all(1)).nonzero().flatten()
    if len(broken):
        raise DataError(
            f"the outputs of {len(broken)} examples are not finite, the first at position {int(broken[0])}; "
            "lower the learning rate"
        )


def _log_class(label: int, separation: Separation, clusters: Tensor) -> None:
    share = float((clusters == 0).double().mean())
    score = "none" if separation.silhouette is None else f"{separation.silhouette.value:.3f}"
    _log.info(
        "class %d: %d clusters, the largest with %.1f %%, silhouette %s, lambda %g",
        label, separation.k, 100 * share, score, separation.lambda_,
    )  # fmt: skip


def _warn(classes: Mapping[int, Separation], *, expected: bool) -> None:
    """Say which classes have nothing to separate, in one sentence each for all of them."""
    constant = [str(label) for label, separation in classes.items() if separation.silhouette is None and expected]
    if constant:
        warnings.warn(
            f"the outputs of class {', '.join(constant)} are constant, so there is one cluster; infer later, or raise "
            "the learning rate",
            HoldfastWarning,
            stacklevel=3,
        )
    doubtful = [
        f"{label} ({separation.silhouette.value:.2f})"
        for label, separation in classes.items()
        if separation.silhouette is not None and separation.silhouette.value < _DOUBTFUL
    ]
    if doubtful:
        warnings.warn(
            f"the silhouette of class {', '.join(doubtful)} is under {_DOUBTFUL}, which often marks a majority split "
            "in two; infer at another epoch, or look at the clusters before you trust them",
            HoldfastWarning,
            stacklevel=3,
        )
