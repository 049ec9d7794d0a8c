"""Is a choice by loss curves more than a choice at random? What S2L assumes, measured on the curves themselves.

Three assumptions: the proxy has learned from the data, so that its curves are about them; curves differ in how they
run, not by noise; and clusters have a say in what is taken. Each is a `Check` with a pure function of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.finetuning.selection.balanced import members_of
from holdfast.finetuning.selection.s2l import S2lSelection, cluster_trajectories
from holdfast.streams import numpy_stream
from holdfast.training.health.check import Check, Finding

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

#: Curves that are looked at; clusters of a sample are as stable as those of all.
_SAMPLE = 20_000

LEARNED = Check(
    "the proxy has learned",
    0.9,
    1.0,
    "above",
    "a model that knows nothing but how frequent each token is has the loss 1; a tenth less is what a few word pairs "
    "give",
    "train the proxy for longer (--epochs, a smaller --batch-size) or take a pretrained one (--proxy); with so little "
    "data --method random, or source-balanced where sources are named, needs no proxy",
)
STABLE = Check(
    "curves differ by more than noise",
    0.15,
    0.05,
    "below",
    "clusters of every other point and of the points between agree no better than by chance at 0 and wholly at 1 "
    "(adjusted Rand index); where examples behave differently, both halves of their curves show it",
    "take fewer clusters (--clusters), train the proxy for longer, or use --method random or source-balanced",
)
SHAPES = Check(
    "curves run differently",
    0.02,
    None,
    "below",
    "where all but a fiftieth of the differences between curves are of level, they run side by side, and the last loss "
    "alone would say the same",
    "train the proxy for longer; in our measurements clusters of the last loss alone chose about as well as whole "
    "curves, so the choice is not void",
)
SAY = Check(
    "clusters have a say",
    1.0,
    None,
    "below",
    "a cluster of which not even one example can be taken decides nothing: within a source the choice is at random",
    "take fewer clusters (--clusters) or a larger budget; --method source-balanced gives such a choice without a proxy",
)

SOURCES = Check(
    "clusters that are one source",
    0.9,
    None,
    "above",
    "where nearly every example lies in a cluster of a single source, equal parts of the clusters are equal parts of "
    "the sources, which costs no proxy",
    "cluster within sources (--by-source), or draw evenly over sources, which is what this selection does",
)
BEYOND_SOURCES = Check(
    "better than equal shares of sources",
    1.0,
    None,
    "above",
    "where the data names one source only, there are no shares that would do the same without a proxy",
    "compare with --method source-balanced, which takes equal shares of the sources at random and needs no proxy; keep "
    "this choice if the target trained on it is better",
)
_PURE = 0.95  # of a cluster that counts as one source's


def learned(losses: Floats, unigram: float) -> Finding:
    """The last point's mean loss in units of that of a model that only knows how frequent tokens are.

    Args:
        losses: of examples that have one, shape (n, T).
        unigram: entropy of the learned tokens, in nats.
    """
    last = float(losses[:, -1].mean())
    return LEARNED.finding(
        last / unigram if unigram > 0 else 0.0,
        f"the proxy's loss ends at {last:.2f} and knowing how frequent each token is already gives {unigram:.2f}",
    )


def stable(losses: Floats, sources: Ints, k: int, *, seed: int = 0) -> Finding | None:
    """Whether two halves of the points see the same clusters; None where there is but one point.

    Args:
        losses: of examples that have one, shape (n, T).
        sources: of the same examples.
        k: clusters of each source.
        seed: names the random streams.
    """
    if losses.shape[1] < 2:
        return None
    from sklearn.metrics import adjusted_rand_score  # noqa: PLC0415 - takes a while

    some = _some(len(losses), seed)
    share = max(1, round(k * len(some) / len(losses)))
    halves = [
        cluster_trajectories(losses[some][:, first::2], k=share, sources=sources[some], seed=seed).labels
        for first in (0, 1)
    ]
    # Within each source: that examples of two sources are in different clusters is no achievement of the curves.
    parts = [members for members in members_of(sources[some]).values() if len(members) > 3]
    scores = [adjusted_rand_score(*(half[members] for half in halves)) for members in parts]
    value = float(np.average(scores, weights=[len(members) for members in parts])) if parts else math.nan
    return STABLE.finding(value, f"two halves of the points agree on the clusters to {value:.2f}, by chance to 0")


def shapes(losses: Floats) -> Finding | None:
    """How much of the differences between curves is not a difference of level; None where there is but one point."""
    if losses.shape[1] < 2:
        return None
    curves = losses - losses.mean(0)
    level = curves.mean(1, keepdims=True)
    whole = float(np.square(curves, dtype=np.float64).mean())
    share = float(np.square(curves - level, dtype=np.float64).mean()) / whole if whole > 0 else 0.0
    return SHAPES.finding(
        share, f"{100 * (1 - share):.1f} % of the differences between loss curves are of level, not of how they run"
    )


def clusters_have_a_say(chosen: S2lSelection, labels_of: Ints) -> Finding:
    """Examples that are taken of a cluster, over the sources that aren't taken whole.

    Args:
        chosen: the choice.
        labels_of: the source that each cluster belongs to.
    """
    sizes = chosen.clusters.sizes
    cut = [
        chosen.source_quotas[source] / int((labels_of == source).sum())
        for source in np.unique(labels_of).tolist()
        if chosen.source_quotas[source] < int(sizes[labels_of == source].sum())
    ]
    value = float(np.median(cut)) if cut else math.inf
    sentence = (
        f"of a cluster {value:.1f} examples can be taken on average in the middle source"
        if cut
        else "all sources are taken whole"
    )
    return SAY.finding(value, sentence)


def beside_equal_shares(sources: int) -> Finding | None:
    """What no measure of curves shows, since it takes a training of the target; None where there is one source.

    Args:
        sources: how many the data names.
    """
    if sources < 2:
        return None
    return BEYOND_SOURCES.finding(
        float(sources),
        f"the data names {sources:,} sources, and in all our measurements with named sources equal shares of them at "
        "random did as well as a choice by curves",
    )


def one_source(clusters: Ints, sources: Ints) -> Finding | None:
    """The share of examples in clusters of which at least 95 % are of one source; None where there is one source.

    Args:
        clusters: of each example, -1 for none, shape (n,).
        sources: of each example, shape (n,).
    """
    there = clusters >= 0
    clusters, sources = clusters[there], sources[there]
    names, code = np.unique(sources, return_inverse=True)
    if len(names) < 2:
        return None
    counts = np.zeros((int(clusters.max()) + 1, len(names)), np.int64)
    np.add.at(counts, (clusters, code), 1)
    sizes = counts.sum(1)
    pure = counts.max(1) >= _PURE * np.maximum(sizes, 1)
    share = float(sizes[pure].sum() / sizes.sum())
    return SOURCES.finding(
        share,
        f"{100 * share:.0f} % of the examples lie in clusters of one source ({int(pure[sizes > 0].sum())} of "
        f"{int((sizes > 0).sum())} clusters)",
    )


def findings(
    chosen: S2lSelection,
    losses: Floats,
    *,
    sources: Ints | None,
    undefined: NDArray[np.bool_],
    k: int,
    unigram: float | None,
    seed: int = 0,
) -> Sequence[Finding]:
    """All of them for a choice.

    Args:
        chosen: what was chosen.
        losses: of all examples, shape (n, T).
        sources: as the choice was told.
        undefined: examples without a loss.
        k: clusters of each source.
        unigram: entropy of the learned tokens, where it is known.
        seed: names the random streams.
    """
    usable = np.flatnonzero(~undefined)
    curves = losses[usable]
    own = np.zeros(len(usable), np.int64) if sources is None else sources[usable]
    found = [
        None if unigram is None else learned(curves, unigram),
        stable(curves, own, k, seed=seed),
        shapes(curves),
        clusters_have_a_say(chosen, chosen.clusters.sources),
    ]
    return [finding for finding in found if finding is not None]


def _some(count: int, seed: int) -> Ints:
    if count <= _SAMPLE:
        return np.arange(count)
    return np.sort(numpy_stream(seed, "curves looked at").choice(count, _SAMPLE, replace=False))
