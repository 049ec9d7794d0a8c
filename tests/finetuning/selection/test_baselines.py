"""A8: the other ways to choose, on scores with a known answer."""

from itertools import combinations
from math import e
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.finetuning import (
    ConfidenceCurriculum,
    FineTuningSettings,
    facility_locations,
    fine_tune,
    high_learnability,
    least_confidence,
    middle_perplexity,
    random_subset,
    source_balanced_random,
)
from holdfast.finetuning.selection.baselines import most_confident, proportional
from tests.finetuning.small import instructions, language, tokens_of

ALL = np.ones(10, bool)
SCORES = np.array([5, 0, 9, 1, 8, 2, 7, 3, 6, 4]) / 10


def test_least_confidence_takes_the_lowest() -> None:
    assert least_confidence(SCORES, ALL, 3).tolist() == [1, 3, 5]


@pytest.mark.parametrize(("budget", "values"), [(2, {4, 5}), (3, {3, 4, 5}), (4, {3, 4, 5, 6}), (10, set(range(10)))])
def test_the_middle_is_centred_on_the_median(budget: int, values: set[int]) -> None:
    positions = middle_perplexity(SCORES, ALL, budget)
    assert {round(10 * score) for score in SCORES[positions]} == values


def test_learnable_is_what_a_training_lowered() -> None:
    before, after = np.array([3.0, 3, 3, 3]), np.array([2.9, 1.0, 4.0, 2.0])
    assert high_learnability(before, after, np.ones(4, bool), 2).tolist() == [1, 3]


def test_unusable_examples_are_never_chosen() -> None:
    usable = np.arange(10) % 2 == 0
    states = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    chosen = [
        random_subset(usable, 4, seed=0),
        source_balanced_random(np.arange(10) // 5, usable, 4, seed=0),
        least_confidence(SCORES, usable, 4),
        middle_perplexity(SCORES, usable, 4),
        high_learnability(SCORES, SCORES[::-1], usable, 4),
        facility_locations(states, np.arange(10) // 5, usable, 4),
        most_confident(SCORES, usable, 4),
    ]
    for found in chosen:
        assert len(np.unique(found)) == 4
        assert usable[found].all()
        with pytest.raises(ConfigError, match="5 examples to choose from"):
            random_subset(usable, 6, seed=0)


def test_random_subsets_follow_their_seed() -> None:
    one, same, other = (random_subset(np.ones(99, bool), 20, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_sources_get_equal_shares() -> None:
    sources = np.array([0] * 80 + [1] * 15 + [2] * 5)
    positions = source_balanced_random(sources, np.ones(100, bool), 30, seed=3)
    assert np.bincount(sources[positions]).tolist() in ([13, 12, 5], [12, 13, 5])


def test_proportional_shares_sum_to_the_budget() -> None:
    assert proportional(np.array([50, 30, 21]), 10).tolist() == [5, 3, 2]
    assert proportional(np.array([1, 1, 1]), 2).sum() == 2


@pytest.mark.parametrize("seed", range(5))
def test_facility_locations_are_near_the_optimum(seed: int) -> None:
    states = np.random.default_rng(seed).standard_normal((12, 4)).astype(np.float32)
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    similarity = 1 + unit @ unit.T
    positions = facility_locations(states, np.zeros(12, np.int64), np.ones(12, bool), 3)
    worth = similarity[:, positions].max(1).sum()
    best = max(similarity[:, list(choice)].max(1).sum() for choice in combinations(range(12), 3))
    assert best * (1 - 1 / e) <= worth <= best + 1e-5


def test_facility_locations_share_the_budget_by_size_or_equally() -> None:
    states = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    sources = np.array([0] * 80 + [1] * 20)
    by_size = facility_locations(states, sources, np.ones(100, bool), 10)
    equal = facility_locations(states, sources, np.ones(100, bool), 10, equal_sources=True)
    assert np.bincount(sources[by_size]).tolist() == [8, 2]
    assert np.bincount(sources[equal]).tolist() == [5, 5]


def test_a_curriculum_feeds_the_surest_first_and_keeps_its_budget() -> None:
    data = instructions()
    model = language(data)
    tokens = tokens_of(data, model)
    settings = FineTuningSettings(steps=9, batch_size=4, learning_rate=1e-2)
    feed = ConfidenceCurriculum(tokens, budget=12, steps=9, batch_size=4)
    from holdfast.finetuning import response_scores

    confidence = response_scores(model.model, tokens).confidence
    fine_tune(model.model, tokens, settings, feed=feed)
    assert len(feed.chosen) == len(set(feed.chosen)) == 12
    assert feed.chosen[:4] == np.argsort(-confidence, kind="stable")[:4].tolist()


@pytest.mark.parametrize(("steps", "firsts"), [(4, [0, 2, 3]), (3, [0, 1, 2]), (8, [0, 3, 6]), (9, [0, 3, 6])])
def test_every_round_of_a_curriculum_has_its_steps(steps: int, firsts: list[int]) -> None:
    data = instructions()
    model = language(data)
    feed = ConfidenceCurriculum(tokens_of(data, model), budget=12, steps=steps, batch_size=2)
    chosen = list[int]()
    for step in range(steps):
        assert len(feed(model.model, step)) == 2
        chosen.append(len(feed.chosen))
    assert [chosen.index(count) for count in (4, 8, 12)] == firsts
    assert len(set(feed.chosen)) == 12


def test_a_training_with_a_curriculum_keeps_no_checkpoint(tmp_path: Path) -> None:
    """Its rounds are in memory only: continued in the middle of one, it had nothing to feed."""
    data = instructions()
    model = language(data)
    tokens = tokens_of(data, model)
    feed = ConfidenceCurriculum(tokens, budget=12, steps=9, batch_size=4)
    with pytest.raises(ConfigError, match="what was fed isn't kept"):
        fine_tune(
            model.model, tokens, FineTuningSettings(steps=9, batch_size=4), feed=feed, checkpoint=tmp_path / "last"
        )


def test_a_curriculum_needs_room_for_its_rounds() -> None:
    tokens = tokens_of(instructions(), language())
    with pytest.raises(ConfigError, match="rounds"):
        ConfidenceCurriculum(tokens, budget=2, steps=9, batch_size=4)
