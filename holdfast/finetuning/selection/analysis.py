"""Did the clusters find what belongs together, does it carry over to a larger model, and what did it cost?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Homogeneity:
    """How far clusters are of one topic.

    Attributes:
        shares: of the most frequent topic in each cluster of at least two examples.
        mean: of the shares, weighed by size.
    """

    shares: NDArray[np.float64]
    mean: float


def homogeneity(labels: Ints, topics: Ints) -> Homogeneity:
    """How far clusters are of one topic (Figure 3.6 of the dissertation).

    Args:
        labels: cluster of each example; negative ones are left out.
        topics: of each example, from 0.
    """
    clustered = labels >= 0
    table = np.zeros((labels.max() + 1, topics.max() + 1), np.int64)
    np.add.at(table, (labels[clustered], topics[clustered]), 1)
    table = table[table.sum(1) > 1]
    most, sizes = table.max(1), table.sum(1)
    return Homogeneity(most / sizes, float(most.sum() / sizes.sum()))


def within_share(values: Floats, labels: Ints) -> float:
    """The share of the values' variance that is within clusters: 0 if members coincide, 1 if clusters say nothing.

    Args:
        values: trajectories, of the proxy or of another model, shape (n, T).
        labels: cluster of each example; negative ones are left out.
    """
    clustered = labels >= 0
    x, clusters = values[clustered].astype(np.float64), labels[clustered]
    sizes = np.maximum(np.bincount(clusters), 1)
    means = np.stack([np.bincount(clusters, weights=column) for column in x.T], 1) / sizes[:, None]
    inside = np.square(x - means[clusters]).sum()
    return float(inside / np.square(x - x.mean(0)).sum())


def rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's, of two vectors without ties."""
    first, second = (np.argsort(np.argsort(values)) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


def evenness(topics: Ints, count: int) -> float:
    """Entropy of the topics, relative to that of equal shares.

    Args:
        topics: of the examples, from 0.
        count: how many topics there are.
    """
    shares = np.bincount(topics, minlength=count) / len(topics)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum() / np.log(count))


@dataclass(frozen=True)
class Cost:
    """What a selection costs, in units of parameters x examples x tokens (a forward pass is 2, a step 6).

    Attributes:
        training: of the proxy.
        recording: of its losses.
        target: one training of the target on all examples.
    """

    training: float
    recording: float
    target: float

    @property
    def share(self) -> float:
        """Of the target's training."""
        return (self.training + self.recording) / self.target


def selection_cost(proxy: float, target: float, *, epochs: int = 3, points: int = 12, trained: float = 1.0) -> Cost:
    """What S2L costs beside one training of the target on everything.

    Args:
        proxy: its parameters.
        target: its parameters.
        epochs: of both.
        points: of a trajectory.
        trained: share of the examples that the proxy is trained on.
    """
    return Cost(6 * epochs * proxy * trained, 2 * points * proxy, 6 * epochs * target)
