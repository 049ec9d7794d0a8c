"""Is a cluster that is taken for another class a group, or are its labels wrong?

A network takes both for the other class. A group shares a shortcut with that class and nothing else, so its examples
have a look of their own; examples whose labels are wrong *are* of that class, and nothing tells them apart. So the
cluster is compared with what is of the other class and taken for it, by a classifier on examples it has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.primitives.two_samples import FEWEST, told_apart
from holdfast.spurious.group_inference.discovery import Cluster
from holdfast.spurious.group_inference.partition import ClusterPartition
from holdfast.training.health.check import Check, Finding

_BLOCK, _SIDE, _WIDEST, _IMAGE_DIMENSIONS = 1_024, 16, 4_096, 4
OWN_LOOK = Check(
    "a look of its own",
    0.65,
    None,
    "below",
    "examples whose labels are wrong are examples of the class they are taken for: a classifier ranks them above "
    "others of it as often as not, .5; a group differs from it by all that is not the shortcut",
    "look at the labels of this cluster before you train with groups: relabel what is wrong, as repeating wrong labels "
    "harms",
)


def own_look(
    cluster: Cluster,
    partition: ClusterPartition,
    predictions: Tensor,
    vectors: Sequence[Tensor],
    names: Sequence[str],
    *,
    seed: int = 0,
) -> Finding | None:
    """Whether a cluster can be told from the examples of the class that it is taken for.

    Args:
        cluster: one that is taken for another class.
        partition: where it comes from.
        predictions: class that the model predicts, int64 of shape (n,), in the order of the partition.
        vectors: what examples look like: matrices of shape (n, d) in that order, such as inputs and features.
        names: of the classes.
        seed: names the random stream.

    Returns:
        What was found; None where nothing is mistaken, or too few are of either kind to tell.
    """
    target = cluster.mistaken_for
    if target is None:
        return None
    own = (partition.labels == cluster.label) & (partition.clusters == cluster.cluster) & (predictions == target)
    others = (partition.labels == target) & (predictions == target)
    if min(int(own.sum()), int(others.sum())) < FEWEST:
        return None
    first, second = own.nonzero().flatten(), others.nonzero().flatten()
    rows = torch.cat([first, second])
    looks = side_by_side(*(matrix[rows] for matrix in vectors))
    told = told_apart(looks[: len(first)], looks[len(first) :], seed=seed)
    assert told is not None
    name, other = names[cluster.label], names[target]
    how = f"{100 * told.area:.0f} ± {100 * told.standard_error:.0f} % of pairs are ranked right, guessing has 50 %"
    what = f"cluster {cluster.cluster} of {name}"
    sentence = (
        f"{what} is hardly told from the examples of {other} that it is taken for ({how}), so its labels may be wrong"
        if OWN_LOOK.verdict(told.area) != "ok"
        else f"{what} can be told from the examples of {other} that it is taken for ({how}), so it is rather a group"
    )
    return OWN_LOOK.finding(told.area, sentence)


def side_by_side(*matrices: Tensor) -> Tensor:
    """Vectors of several kinds as one, each kind with the same weight: float32 of shape (n, sum of d).

    Args:
        matrices: float of shape (n, d) each.
    """
    parts = []
    for matrix in matrices:
        flat = matrix.flatten(1).float()
        deviation = flat.std(0)
        scaled = (flat - flat.mean(0)) / torch.where(deviation > 0, deviation, 1.0)
        parts.append(scaled / max(flat.shape[1], 1) ** 0.5)
    return torch.cat(parts, dim=1)


def looks_of(examples: Examples, *more: Tensor) -> list[Tensor]:
    """What examples look like: their inputs as vectors, where these are one tensor of moderate size, and what is given.

    Args:
        examples: the set.
        more: matrices of shape (n, d), such as the features of a model.

    Returns:
        Matrices of shape (n, d); images are reduced to at most 16 pixels a side.
    """
    parts = []
    for start in range(0, len(examples), _BLOCK):
        inputs = examples.inputs.gather(torch.arange(start, min(start + _BLOCK, len(examples))))
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            return list(more)
        if inputs.ndim == _IMAGE_DIMENSIONS and max(inputs.shape[2:]) > _SIDE:
            inputs = F.adaptive_avg_pool2d(inputs, (min(inputs.shape[2], _SIDE), min(inputs.shape[3], _SIDE)))
        parts.append(inputs.flatten(1))
    vectors = torch.cat(parts)
    return [*more] if vectors.shape[1] > _WIDEST else [vectors, *more]
