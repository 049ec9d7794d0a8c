"""Each check says yes where its assumption holds by construction, and no where it does not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.finetuning import s2l_select
from holdfast.finetuning.selection.health import (
    beside_equal_shares,
    clusters_have_a_say,
    findings,
    learned,
    one_source,
    shapes,
    stable,
)

DRAW = np.random.default_rng(0)
STEPS = np.linspace(0, 1, 4)


def behaviours(noise: float, each: int = 60) -> NDArray[np.float32]:
    """Six kinds of curves, of which some start alike and end elsewhere."""
    kinds = np.stack([high - drop * STEPS for high in (3.0, 2.0) for drop in (0.2, 1.0, 1.8)])
    return (np.repeat(kinds, each, 0) + DRAW.normal(0, noise, (6 * each, 4))).astype(np.float32)


def one(size: int) -> NDArray[np.int64]:
    return np.zeros(size, np.int64)


def test_behaviours_are_stable_and_noise_is_not() -> None:
    good, noise = behaviours(0.03), DRAW.normal(2, 0.3, (360, 4)).astype(np.float32)
    assert (found := stable(good, one(360), 6)) is not None
    assert found.verdict == "ok"
    assert found.value > 0.5
    assert (found := stable(noise, one(360), 6)) is not None
    assert found.verdict == "failed"
    assert stable(good[:, :1], one(360), 6) is None


def test_that_sources_differ_is_no_merit_of_the_curves() -> None:
    """Noise about two levels, one of each source: clusters over all agree, those within a source don't."""
    levels = np.repeat([1.0, 9.0], 180)[:, None]
    losses = (levels + DRAW.normal(0, 0.3, (360, 4))).astype(np.float32)
    assert (apart := stable(losses, np.repeat([0, 1], 180), 4)) is not None
    assert (together := stable(losses, one(360), 2)) is not None
    assert apart.value < 0.05
    assert together.value > 0.9


def test_curves_side_by_side_differ_by_level_alone() -> None:
    level = DRAW.normal(3, 1, (200, 1)).astype(np.float32)
    assert (beside := shapes(level - STEPS[None].astype(np.float32))) is not None
    assert beside.verdict == "doubtful"
    assert beside.value < 1e-6
    assert (other := shapes(behaviours(0.03))) is not None
    assert other.verdict == "ok"


def test_a_proxy_that_guesses_by_frequency_has_not_learned() -> None:
    losses = np.full((10, 4), 5.4, np.float32)
    assert learned(losses, 5.3).verdict == "failed"
    assert learned(losses, 5.6).verdict == "doubtful"
    assert learned(losses, 7.0).verdict == "ok"


def test_clusters_without_a_pick_have_no_say() -> None:
    losses = behaviours(0.1)
    few, many = (s2l_select(losses, budget, k=20) for budget in (6, 120))
    assert clusters_have_a_say(few, few.clusters.sources).verdict == "doubtful"
    assert clusters_have_a_say(many, many.clusters.sources).verdict == "ok"
    whole = s2l_select(losses, len(losses), k=20)
    assert clusters_have_a_say(whole, whole.clusters.sources).sentence == "all sources are taken whole"


def test_all_checks_of_a_choice() -> None:
    losses = behaviours(0.03)
    undefined = np.zeros(len(losses), np.bool_)
    undefined[:7] = True
    chosen = s2l_select(losses, 60, k=6, undefined=undefined)
    found = findings(chosen, losses, sources=None, undefined=undefined, k=6, unigram=6.0)
    assert [one.check for one in found if one.verdict != "ok"] == []
    assert len(found) == 4
    assert len(findings(chosen, losses, sources=None, undefined=undefined, k=6, unigram=None)) == 3


SOURCES = np.repeat([0, 1], 50)


def test_clusters_that_repeat_the_sources_are_doubtful_and_mixed_ones_are_not() -> None:
    assert one_source(SOURCES * 3, SOURCES).verdict == "doubtful"
    mixed = np.tile([0, 1], 50)
    assert one_source(mixed, SOURCES).verdict == "ok"
    assert one_source(mixed, np.zeros(100, np.int64)) is None


def test_examples_without_a_cluster_are_left_out() -> None:
    clusters = np.where(np.arange(100) % 2, SOURCES, -1)
    assert "2 of 2 clusters" in one_source(clusters, SOURCES).sentence


def test_named_sources_are_a_reason_to_compare_with_equal_shares_of_them() -> None:
    assert beside_equal_shares(1) is None
    assert (found := beside_equal_shares(3)) is not None
    assert found.verdict == "doubtful"
    assert "--method source-balanced" in found.remedy
