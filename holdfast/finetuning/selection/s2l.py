"""S2L (Yang, Mishra, Chiang and Mirzasoleiman, NeurIPS 2024): choose fine-tuning data by a small model's loss curves.

The paper is https://arxiv.org/abs/2403.07384; algorithms and figures are numbered as in chapter 3 of the dissertation,
https://escholarship.org/uc/item/0399v1qw.

Examples whose loss curves are similar under a small model have similar gradients under a large one, so a few of them
stand for all. Trajectories are clustered, within each source where sources are known, and equally many examples are
taken of every cluster, which lifts the rare ones. No large model looks at the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError, DataError
from holdfast.finetuning.selection.balanced import balanced, members_of, quotas
from holdfast.primitives.lloyd import lloyd
from holdfast.primitives.lloyd_options import Engine, Start
from holdfast.streams import derive_seed

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrajectoryClusters:
    """Clusters of examples whose loss curves are similar.

    Attributes:
        labels: cluster of each example, int64 of shape (n,); -1 for those that were left out.
        centres: mean trajectory of each cluster, float32 of shape (clusters, T).
        sources: the source that each cluster is a part of, int64 of shape (clusters,).
    """

    labels: Ints
    centres: Floats
    sources: Ints

    @property
    def sizes(self) -> Ints:
        """Examples of each cluster."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.centres))


@dataclass(frozen=True, eq=False)
class S2lSelection:
    """What was chosen, and why.

    Attributes:
        positions: of the chosen examples, increasing, int64.
        clusters: the clusters that they were drawn from.
        source_quotas: how many were to be taken of each source, int64.
    """

    positions: Ints
    clusters: TrajectoryClusters
    source_quotas: Ints

    @property
    def taken(self) -> Ints:
        """How many were taken of each cluster."""
        return np.bincount(self.clusters.labels[self.positions], minlength=len(self.clusters.centres))


def cluster_trajectories(
    losses: Floats,
    *,
    k: int = 100,
    sources: Ints | None = None,
    included: NDArray[np.bool_] | None = None,
    iterations: int = 20,
    seed: int = 0,
    start: Start = "k-means++",
    most_per_centre: int | None = 256,
    engine: Engine = "auto",
) -> TrajectoryClusters:
    """Cluster loss trajectories as they are, without scaling, within each source.

    Args:
        losses: shape (n, T). Any vectors per example will do, such as hidden states.
        k: clusters of a source; half its examples where those are fewer.
        sources: of the examples, from 0; one for all by default.
        included: examples to cluster; all by default.
        iterations: of k-means.
        seed: names the random streams.
        start: where centres start. At random points, the published start, dense regions get many of them; far from
            one another, rare behaviours get some too.
        most_per_centre: centres are fitted on at most so many examples each.
        engine: that does it.

    Returns:
        The clusters, those of one source after those of another, the largest first.

    Raises:
        ConfigError: if k is less than 1.
        DataError: if shapes disagree, or nothing is included.
    """
    n = len(losses)
    sources = np.zeros(n, np.int64) if sources is None else sources
    included = np.ones(n, np.bool_) if included is None else included
    if k < 1:
        raise ConfigError(f"k is {k}; give at least 1 cluster")
    if losses.ndim != 2 or sources.shape != (n,) or included.shape != (n,):
        raise DataError(
            f"losses have shape {losses.shape}, sources {sources.shape} and included {included.shape}; "
            "give (n, T), (n,) and (n,)"
        )
    if not bool(included.any()):
        raise DataError("no example has a loss trajectory, so there is nothing to cluster")
    labels, centres, owners, first = np.full(n, -1, np.int64), list[Floats](), list[int](), 0
    for source, members in members_of(np.where(included, sources, -1)).items():
        clustering = lloyd(
            losses[members],
            min(k, max(1, len(members) // 2)),
            iterations=iterations,
            seed=derive_seed(seed, "source", source),
            start=start,
            most_per_centre=most_per_centre,
            engine=engine,
        )
        sizes = np.bincount(clustering.labels, minlength=len(clustering.centres))
        order = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
        number = np.empty(len(sizes), np.int64)
        number[order] = np.arange(first, first + len(order))
        labels[members] = number[clustering.labels]
        centres.append(clustering.centres[order])
        owners += [source] * len(order)
        first += len(order)
    return TrajectoryClusters(labels, np.concatenate(centres), np.array(owners, np.int64))


def s2l_select(
    losses: Floats,
    budget: int,
    *,
    k: int = 100,
    sources: Ints | None = None,
    undefined: NDArray[np.bool_] | None = None,
    smallest: int = 3,
    seed: int = 0,
    start: Start = "k-means++",
    engine: Engine = "auto",
) -> S2lSelection:
    """Choose examples by their loss trajectories (Algorithm 2 of the dissertation).

    Args:
        losses: of each example along a small model's training, shape (n, T).
        budget: how many to choose.
        k: clusters, of each source.
        sources: of the examples, from 0: the budget is shared equally among sources first, then among the clusters of
            each.
        undefined: examples without a loss, which are never chosen.
        smallest: smaller clusters, likely outliers, are only drawn from when others don't suffice.
        seed: names the random streams.
        start: where centres of k-means start.
        engine: of k-means.

    Raises:
        ConfigError: if there are fewer examples to choose from than the budget.
        DataError: if shapes disagree.

    Example:
        >>> import numpy as np
        >>> easy, hard = np.tile([0.5, 0.1], (90, 1)), np.tile([2.0, 1.9], (10, 1))
        >>> found = s2l_select(np.concatenate([easy, hard]).astype(np.float32), 20, k=2)
        >>> found.taken.tolist()
        [10, 10]
    """
    included = np.ones(len(losses), np.bool_) if undefined is None else ~undefined
    if included.shape != (len(losses),):
        raise DataError(
            f"undefined has shape {included.shape} and losses {losses.shape}; give (n,) and (n, T), a flag for each "
            "example"
        )
    if not 1 <= budget <= int(included.sum()):
        raise ConfigError(f"the budget is {budget}, and there are {int(included.sum())} examples that have a loss")
    clusters = cluster_trajectories(
        losses, k=k, sources=sources, included=included, seed=seed, start=start, engine=engine
    )
    own = np.where(clusters.labels >= 0, clusters.sources[clusters.labels], -1)
    shares = quotas(np.bincount(own[own >= 0]), budget)
    chosen = [
        members[balanced(clusters.labels[members], int(shares[source]), seed=seed, smallest=smallest)]
        for source, members in members_of(own).items()
    ]
    return S2lSelection(np.sort(np.concatenate(chosen)), clusters, shares)
