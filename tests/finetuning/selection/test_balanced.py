"""A3 to A5: equal shares, as fair as can be, and uniform within groups."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from holdfast.errors import ConfigError
from holdfast.finetuning import balanced, quotas, resolve_budget
from holdfast.finetuning.selection.balanced import members_of


@pytest.mark.parametrize("seed", range(30))
def test_no_other_shares_are_fairer(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, 7, draw.integers(1, 6))
    budget = int(draw.integers(0, sizes.sum() + 2))
    counts = quotas(sizes, budget)
    assert counts.sum() == min(budget, sizes.sum())
    assert (counts <= sizes).all()
    others = (
        choice for choice in product(*(range(size + 1) for size in sizes)) if sum(choice) == min(budget, sizes.sum())
    )
    assert sorted(counts.tolist()) == max(sorted(choice) for choice in others)


def test_there_is_a_water_level() -> None:
    sizes = np.random.default_rng(0).integers(1, 500, 100)
    counts = quotas(sizes, 4000)
    level = counts[counts < sizes].min()
    assert all(
        count == size if size <= level else count in (level, level + 1)
        for count, size in zip(counts, sizes, strict=True)
    )


def test_fewer_than_groups() -> None:
    assert quotas([5, 5, 5], 2).sum() == 2
    assert quotas([], 5).tolist() == []


def test_what_a_small_source_leaves_goes_to_larger_ones() -> None:
    assert quotas([10, 1000, 1000], 600).tolist() == [10, 295, 295]


def test_balanced_takes_its_quotas_without_repetition() -> None:
    labels = np.random.default_rng(1).choice(5, 300, p=[0.6, 0.2, 0.1, 0.07, 0.03])
    positions = balanced(labels, 100, seed=0)
    assert len(np.unique(positions)) == len(positions) == 100
    assert np.bincount(labels[positions]).tolist() == quotas(np.bincount(labels), 100).tolist()
    assert np.array_equal(positions, balanced(labels, 100, seed=0))
    assert not np.array_equal(positions, balanced(labels, 100, seed=1))
    assert balanced(labels, 999, seed=0).tolist() == list(range(300))


def test_those_without_a_group_are_never_taken() -> None:
    labels = np.array([0, -1, 1, -1, 1])
    assert balanced(labels, 5, seed=0).tolist() == [0, 2, 4]
    assert balanced(np.full(4, -1), 2, seed=0).tolist() == []


def test_groups_need_not_be_numbered_one_after_the_other() -> None:
    labels = np.array([7, 10**6, 7, -1, 10**6, 7])
    assert balanced(labels, 5, seed=0).tolist() == [0, 1, 2, 4, 5]
    assert {group: places.tolist() for group, places in members_of(labels).items()} == {7: [0, 2, 5], 10**6: [1, 4]}
    assert members_of(np.full(3, -1)) == {}


def test_small_groups_only_fill_a_shortage() -> None:
    labels = np.array([0] * 10 + [1] * 2 + [2] * 10 + [3])
    for seed in range(20):
        assert set(labels[balanced(labels, 12, seed=seed, smallest=3)]) == {0, 2}
    assert np.bincount(labels[balanced(labels, 22, seed=0, smallest=3)]).tolist() == [10, 1, 10, 1]


def test_uniform_within_a_group() -> None:
    labels = np.array([0] * 4 + [1] * 12)
    counts = np.zeros(16)
    for seed in range(2000):
        counts[balanced(labels, 8, seed=seed)] += 1
    assert (counts[:4] == 2000).all()
    assert chisquare(counts[4:]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("budget", "count"),
    [
        (5, 5),
        ("5", 5),
        ("50%", 100),
        ("1,000%", None),
        ("1,5%", None),
        ("0,5", None),
        ("5,0", None),
        ("1,00", None),
        (",200", None),
        ("0", None),
        ("201", None),
        ("half", None),
        ("2.5", None),
        ("12.5%", 25),
        ("nan%", None),
        ("", None),
    ],
)
def test_budgets(budget: int | str, count: int | None) -> None:
    if count is None:
        with pytest.raises(ConfigError, match="there are 200 examples"):
            resolve_budget(budget, 200)
    else:
        assert resolve_budget(budget, 200) == count


def test_a_comma_parts_thousands() -> None:
    assert resolve_budget("1,234,567", 2_000_000) == 1_234_567
    with pytest.raises(ConfigError, match="the budget is '1,234,56'"):
        resolve_budget("1,234,56", 2_000_000)


def test_a_budget_goes_by_its_name() -> None:
    with pytest.raises(ConfigError, match="--some is '201' and there are 200 examples"):
        resolve_budget("201", 200, "--some")
