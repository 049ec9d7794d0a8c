"""An audit of anybody's model outputs: wrong labels, suspected groups, near duplicates and outliers, without training.

All it needs are arrays: labels and the probabilities that a model gave to examples it did not learn from, and, for
duplicates and outliers, a vector per example (features of any network, or the inputs themselves). Memory grows with the
number of examples, never with its square.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.auditing.own_look import own_look
from holdfast.auditing.wrong_labels import LabelQuality, label_quality
from holdfast.errors import DataError, HoldfastWarning
from holdfast.primitives.neighbours import nearest_neighbours
from holdfast.spurious.group_inference.discovery import Cluster, describe_clusters, rank
from holdfast.spurious.group_inference.partition import ClusterPartition
from holdfast.spurious.group_inference.separation import separate
from holdfast.training.health.check import Finding

#: Rows may sum to one this much apart: half precision, or three decimals in a file.
_SUM_TOLERANCE = 0.01
#: Two examples are near duplicates within this part of the usual distance to the nearest neighbour.
_NEAR = 0.13
_FENCE = 3.0  # Tukey's outer fence, in interquartile ranges
_FEW_DIMENSIONS = 3  # up to here distances are Euclidean: directions say little


@dataclass(frozen=True, eq=False)
class Surroundings:
    """How every example lies among the others.

    Attributes:
        distance: mean distance to its nearest neighbours over that of the median example, float32 of shape (n,).
        outlier: whether that is far out, bool of shape (n,).
        duplicates: the number of its set of near duplicates, from 0 by falling size, or -1; int64 of shape (n,).
        exact: whether another example is the same, bool of shape (n,).
    """

    distance: Tensor
    outlier: Tensor
    duplicates: Tensor
    exact: Tensor

    def sets(self) -> list[Tensor]:
        """Positions of each set of near duplicates, the largest set first."""
        members = (self.duplicates >= 0).nonzero().flatten()
        order = members[self.duplicates[members].argsort(stable=True)]
        return list(torch.split(order, torch.bincount(self.duplicates[members]).tolist())) if len(members) else []


@dataclass(frozen=True, eq=False)
class ArrayAudit:
    """What was found.

    Attributes:
        labels: int64 of shape (n,).
        class_names: a name per class.
        quality: what the probabilities say of the labels; None where there were none.
        partition: the clusters of every class in the space of probabilities; None likewise.
        clusters: what the model makes of each.
        looks: of clusters that stand out, whether they have a look of their own, by class and cluster; only where there
            are vectors.
        surroundings: how examples lie among one another; None where there were no vectors.
    """

    labels: Tensor
    class_names: tuple[str, ...]
    quality: LabelQuality | None = None
    partition: ClusterPartition | None = None
    clusters: tuple[Cluster, ...] = ()
    looks: dict[tuple[int, int], Finding] | None = None
    surroundings: Surroundings | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def suspected_groups(self) -> tuple[Cluster, ...]:
        """Clusters of which at least half are taken for one other class, most suspicious first."""
        return tuple(one for one in rank(self.clusters) if one.stands_out)

    @property
    def in_groups(self) -> Tensor:
        """Which examples lie in a suspected group that has a look of its own: rare, not wrong; bool of shape (n,)."""
        inside = torch.zeros(len(self), dtype=torch.bool)
        for one in self.suspected_groups:
            found = self.look(one)
            if self.partition is not None and found is not None and found.verdict == "ok":
                inside |= (self.partition.labels == one.label) & (self.partition.clusters == one.cluster)
        return inside

    def look(self, cluster: Cluster) -> Finding | None:
        """Whether a cluster has a look of its own, where that was asked."""
        return (self.looks or {}).get((cluster.label, cluster.cluster))


def audit_arrays(
    labels: Any,
    probabilities: Any = None,
    features: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    neighbours: int = 10,
    k_max: int = 5,
    seed: int = 0,
) -> ArrayAudit:
    """Look for wrong labels, groups, near duplicates and outliers in the outputs of any model.

    Args:
        labels: class of each example, whole numbers from 0, or words, of shape (n,).
        probabilities: of each class, out of sample, shape (n, classes), rows that sum to one.
        features: a vector per example, shape (n, d).
        class_names: a name per column of the probabilities; words are taken in the order of the alphabet by default.
        neighbours: to how many the distance is measured.
        k_max: try 2 to this many clusters in each class.
        seed: names the random streams.

    Returns:
        What was found; nothing is written.

    Raises:
        DataError: if shapes disagree, a value is not finite, rows are no probabilities, or a label is no class.
    """
    if probabilities is None and features is None:
        raise DataError("there are labels only; give the probabilities of a model, or features, or both")
    p = None if probabilities is None else _matrix("probabilities", probabilities)
    vectors = None if features is None else _matrix("features", features)
    classes, names = _labels(labels, class_names, None if p is None else p.shape[1])
    for name, matrix in (("probabilities", p), ("features", vectors)):
        if matrix is not None and len(matrix) != len(classes):
            raise DataError(
                f"there are {len(classes):,} labels and {name} have shape {tuple(matrix.shape)}; give a row per label, "
                "in the same order"
            )
    if len(classes) < 2:
        raise DataError(f"there is {len(classes)} example; give at least 2")
    surroundings = None if vectors is None else find_surroundings(vectors, neighbours)
    if p is None:
        return ArrayAudit(classes, names, surroundings=surroundings)
    _check_probabilities(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)  # the page says it in its own words
        partition = separate(p, classes, k_max=k_max, seed=seed)
    clusters = describe_clusters(p, partition, seed=seed)
    looks = None if vectors is None else _looks(clusters, partition, p, vectors, names=names, seed=seed)
    return ArrayAudit(classes, names, label_quality(p, classes), partition, clusters, looks, surroundings)


def find_surroundings(vectors: Tensor, neighbours: int = 10) -> Surroundings:
    """Outliers and near duplicates by distances to the nearest neighbours, cosine ones above three dimensions.

    A set of near duplicates is what nearest pairs connect whose distance is under 0.13 of the median distance to a
    nearest neighbour. An outlier is beyond Tukey's outer fence: more than three interquartile ranges above the upper
    quartile of the logarithms of the mean distances to the neighbours.

    Args:
        vectors: float32 of shape (n, d).
        neighbours: how many.

    Returns:
        How each example lies.
    """
    if neighbours < 1:
        raise DataError(f"neighbours is {neighbours}; give at least 1")
    directions = vectors.shape[1] > _FEW_DIMENSIONS
    found = nearest_neighbours(F.normalize(vectors, dim=1) if directions else vectors, neighbours)
    distances = found.distances / 2 if directions else found.distances.sqrt()  # |a - b|^2 = 2 (1 - cos)
    nearest, mean = distances[:, 0], distances.mean(1)
    limit = _NEAR * float(nearest.median())
    near = distances <= limit
    # Copies are told by the vectors: cosine distance is 0 between multiples too.
    exact = torch.zeros(len(vectors), dtype=torch.bool)
    for place in range(distances.shape[1]):
        exact |= near[:, place] & (vectors == vectors[found.positions[:, place]]).all(1)
    scale = mean.clamp(min=torch.finfo(mean.dtype).tiny).log()  # distances are skewed, their logarithms hardly
    low, high = (float(_quantile(scale, share)) for share in (0.25, 0.75))
    middle = float(mean.median())
    relative = mean / middle if middle > 0 else torch.where(mean > 0, torch.inf, 1.0)
    return Surroundings(relative, scale > high + _FENCE * (high - low), _connected(found.positions, near), exact)


def _quantile(values: Tensor, share: float) -> Tensor:
    return values.sort().values[round(share * (len(values) - 1))]  # torch's own refuses many values


def _connected(positions: Tensor, near: Tensor) -> Tensor:
    """The number of each example's connected set, by falling size; -1 for those that are alone."""
    from scipy.sparse import coo_array  # type: ignore[import-untyped]  # noqa: PLC0415 - few need it
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]  # noqa: PLC0415

    n = len(positions)
    rows, places = near.nonzero(as_tuple=True)
    pairs = (rows.numpy(), positions[rows, places].numpy())
    _, codes = connected_components(coo_array((np.ones(len(rows), np.int8), pairs), shape=(n, n)), directed=False)
    component = torch.from_numpy(codes).long()
    sizes = torch.bincount(component)
    number = torch.full_like(sizes, -1)
    several = (sizes > 1).nonzero().flatten()
    number[several[sizes[several].argsort(descending=True, stable=True)]] = torch.arange(len(several))
    return number[component]


def _looks(
    clusters: Sequence[Cluster],
    partition: ClusterPartition,
    probabilities: Tensor,
    vectors: Tensor,
    *,
    names: Sequence[str],
    seed: int,
) -> dict[tuple[int, int], Finding]:
    predictions = probabilities.argmax(1)
    return {
        (one.label, one.cluster): found
        for one in clusters
        if one.stands_out and (found := own_look(one, partition, predictions, [vectors], names, seed=seed)) is not None
    }


# ------------------------------------------------------------------------------------------------ what is given


def _matrix(what: str, given: Any) -> Tensor:
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.dtype.kind not in "buif":
        raise DataError(f"{what} are of type {array.dtype}; give numbers, a row per example")
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{what} have shape {array.shape}; give a row per example and a column per {_COLUMN[what]}")
    matrix = torch.from_numpy(np.require(array, np.float32, ["C", "W"]))
    bad = (~torch.isfinite(matrix).all(1)).nonzero().flatten()
    if len(bad):
        raise DataError(
            f"{what} of {len(bad):,} examples are not finite (NaN or infinite), the first in row {int(bad[0])}; leave "
            "these examples out, or compute them again"
        )
    return matrix


_COLUMN = {"probabilities": "class", "features": "number of its vector"}


def _labels(given: Any, names: Sequence[str] | None, columns: int | None) -> tuple[Tensor, tuple[str, ...]]:
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"labels have shape {array.shape}; give one class per example, not a column per class")
    if array.dtype.kind in "OSU":
        return _words(array, names, columns)
    if array.dtype.kind == "f" and bool(np.isnan(array).any()):
        raise DataError(f"{int(np.isnan(array).sum()):,} labels are missing (NaN); leave these examples out")
    if array.dtype.kind not in "buif" or (array.dtype.kind == "f" and bool((array != np.floor(array)).any())):
        raise DataError(f"labels are of type {array.dtype} and not whole numbers; give a class per example, from 0")
    labels = torch.from_numpy(np.require(array, np.int64, ["C", "W"]))
    if len(labels) and int(labels.min()) < 0:
        raise DataError(f"a label is {int(labels.min())}; give classes from 0")
    highest = int(labels.max()) if len(labels) else 0
    count = highest + 1 if columns is None else columns
    if highest >= count:
        raise DataError(
            f"a label is {highest} and the probabilities have {count} columns, for classes 0 to {count - 1}; give a "
            "column per class"
        )
    if names is None:
        return labels, tuple(map(str, range(count)))
    if len(names) != count:
        raise DataError(f"there are {len(names)} class names for {count} classes; give a name per class")
    return labels, tuple(map(str, names))


def _words(
    array: np.ndarray[Any, Any], names: Sequence[str] | None, columns: int | None
) -> tuple[Tensor, tuple[str, ...]]:
    missing = sum(word is None for word in array.tolist())
    if missing:
        raise DataError(f"{missing:,} labels are missing; leave these examples out")
    words = array.astype(str)
    known = sorted(set(words.tolist())) if names is None else [str(name) for name in names]
    if columns is not None and len(known) != columns:
        what = "different labels" if names is None else "class names"
        raise DataError(
            f"there are {len(known)} {what} and {columns} columns of probabilities; name the column of each class with "
            "class_names"
        )
    place = {word: number for number, word in enumerate(known)}
    strange = sorted(set(words.tolist()) - set(known))
    if strange:
        raise DataError(f"the label {strange[0]!r} is none of the class names {', '.join(known[:5])}; name all classes")
    return torch.tensor([place[word] for word in words.tolist()]), tuple(known)


def _check_probabilities(p: Tensor) -> None:
    if p.shape[1] < 2:
        raise DataError("probabilities have one column; give two for two classes: 1 - p and p")
    outside = ((p < -1e-6) | (p > 1 + 1e-3)).any(1).nonzero().flatten()
    if len(outside):
        row = int(outside[0])
        low, high = float(p[row].min()), float(p[row].max())
        raise DataError(
            f"{len(outside):,} rows of the probabilities have values outside 0 to 1, the first is row {row} ({low:.3g} "
            f"to {high:.3g}); are they logits? give their softmax"
        )
    sums = p.double().sum(1)
    wrong = ((sums - 1).abs() > _SUM_TOLERANCE).nonzero().flatten()
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{len(wrong):,} rows of the probabilities don't sum to one, the first is row {row} (sum "
            f"{float(sums[row]):.4g}); give the softmax of a model's outputs, a column per class"
        )
