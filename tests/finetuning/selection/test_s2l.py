"""A4, A9, A10 and A13 on trajectories with a known answer."""

import numpy as np
import pytest

from holdfast.errors import ConfigError, DataError
from holdfast.finetuning import cluster_trajectories, quotas, s2l_select
from holdfast.finetuning.selection.analysis import homogeneity, within_share
from tests.primitives.test_lloyd import planted

LOSSES, TOPICS = planted(3000, 0.05)
SOURCES = np.random.default_rng(2).choice(4, 3000, p=[0.7, 0.2, 0.09, 0.01])


def test_clusters_are_within_sources_and_all_are_in_one() -> None:
    clusters = cluster_trajectories(LOSSES, k=10, sources=SOURCES)
    assert np.array_equal(clusters.sources[clusters.labels], SOURCES)
    assert clusters.sizes.sum() == 3000
    assert clusters.sizes.min() >= 1
    for source in range(4):
        sizes = clusters.sizes[clusters.sources == source]
        assert len(sizes) == min(10, (source == SOURCES).sum() // 2)
        assert (np.diff(sizes) <= 0).all()


def test_sources_share_the_budget_first() -> None:
    selection = s2l_select(LOSSES, 400, k=10, sources=SOURCES)
    assert len(selection.positions) == len(np.unique(selection.positions)) == 400
    expected = quotas(np.bincount(SOURCES), 400)
    assert np.array_equal(selection.source_quotas, expected)
    assert np.array_equal(np.bincount(SOURCES[selection.positions]), expected)
    assert np.array_equal(selection.taken, np.bincount(selection.clusters.labels[selection.positions]))


def test_rare_behaviours_are_lifted() -> None:
    rare = np.bincount(TOPICS).argmin()
    selection = s2l_select(LOSSES, 300, k=8, start="k-means++")
    share = (TOPICS[selection.positions] == rare).mean()
    assert share > 2 * (rare == TOPICS).mean()


def test_examples_without_a_loss_are_never_chosen() -> None:
    undefined = np.arange(3000) % 3 == 0
    losses = np.where(undefined[:, None], 0, LOSSES)
    for seed in range(5):
        selection = s2l_select(losses, 1900, undefined=undefined, k=20, seed=seed)
        assert not undefined[selection.positions].any()
        assert (selection.clusters.labels[undefined] == -1).all()
    with pytest.raises(ConfigError, match="2000 examples that have a loss"):
        s2l_select(losses, 2001, undefined=undefined)


def test_the_seed_decides_all() -> None:
    one, same, other = (s2l_select(LOSSES, 200, k=10, sources=SOURCES, seed=seed).positions for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_clusters_know_topics_better_than_the_last_loss_alone() -> None:
    whole, last = (cluster_trajectories(x, k=16, start="k-means++").labels for x in (LOSSES, LOSSES[:, -1:]))
    shuffled = np.random.default_rng(0).permutation(TOPICS)
    assert homogeneity(whole, TOPICS).mean > homogeneity(last, TOPICS).mean
    assert homogeneity(whole, TOPICS).mean > homogeneity(whole, shuffled).mean + 0.25
    assert within_share(LOSSES, whole) < 0.05


def test_what_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="k is 0"):
        cluster_trajectories(LOSSES, k=0)
    with pytest.raises(DataError, match=r"sources \(2,\)"):
        cluster_trajectories(LOSSES, sources=np.array([0, 1]))
    with pytest.raises(DataError, match="nothing to cluster"):
        cluster_trajectories(LOSSES, included=np.zeros(3000, bool))
    with pytest.raises(DataError, match=r"undefined has shape \(2,\) and losses \(3000,"):
        s2l_select(LOSSES, 400, undefined=np.zeros(2, bool))
    with pytest.raises(ConfigError, match="budget is 0"):
        s2l_select(LOSSES, 0)
