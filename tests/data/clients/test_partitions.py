import numpy as np
import pytest
import torch

from holdfast.data.clients.partitions import (
    Partition,
    at_random,
    by_classes,
    by_dirichlet,
    by_key,
    draw_sizes,
    hold_out_tenth,
    random_classes,
    rolling_classes,
    split_parts,
)
from holdfast.errors import ConfigError, DataError

LABELS = np.arange(1000) % 10


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_disjoint(partition: Partition, n: int) -> None:
    assert len(np.unique(partition.rows)) == len(partition.rows) == partition.counts.sum() <= n


def test_rows_of_owners_are_listed_client_after_client() -> None:
    partition = Partition.of_owners(np.array([2, -1, 0, 2, 0]), 4)
    assert partition.rows.tolist() == [2, 4, 0, 3]
    assert partition.counts.tolist() == [2, 0, 2, 0]
    assert [partition.of(client).tolist() for client in range(4)] == [[2, 4], [], [0, 3], []]
    assert partition.ranks().tolist() == [0, 1, 0, 1]


def test_gathered_rows_are_the_slow_loop_over_clients() -> None:
    inputs, labels = torch.arange(20.0).view(10, 2), torch.arange(10)
    partition = Partition.of_owners(rng().integers(0, 3, 10), 3)
    part = partition.gather(inputs, labels)
    for client in range(3):
        x, y = part.of(client)
        assert torch.equal(x, inputs[partition.of(client)])
        assert y.tolist() == partition.of(client).tolist()


@pytest.mark.parametrize("kind", ["equal", "lognormal", "power-law"])
def test_sizes_add_up_and_nobody_gets_less_than_asked(kind) -> None:
    sizes = draw_sizes(kind, 37, 1000, rng(), at_least=4)
    assert sizes.sum() == 1000 and sizes.min() >= 4
    assert sizes.tolist() == draw_sizes(kind, 37, 1000, rng(), at_least=4).tolist()
    spread = sizes.max() - sizes.min()
    assert spread <= 1 if kind == "equal" else spread > 10


def test_too_many_clients_are_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(DataError, match=r"100 examples don't suffice for 51 clients .* use at most 50 clients"):
        draw_sizes("equal", 51, 100, rng())
    with pytest.raises(ConfigError, match="at least one client and was asked for 0"):
        draw_sizes("equal", 0, 100, rng())


def test_rolling_and_random_classes() -> None:
    assert rolling_classes(12, 3, 10)[[0, 8, 11]].tolist() == [[0, 1, 2], [8, 9, 0], [1, 2, 3]]
    drawn = random_classes(2000, 5, 62, rng())
    assert all(len(set(row)) == 5 for row in drawn.tolist())
    counts = np.bincount(drawn.ravel(), minlength=62)
    assert abs(counts - 2000 * 5 / 62).max() < 60, "every class equally likely: five standard deviations"
    with pytest.raises(ConfigError, match="can't have 11 of 10 classes"):
        rolling_classes(3, 11, 10)


def test_by_classes_deals_every_row_to_an_owner_of_its_class() -> None:
    owned, sizes = rolling_classes(20, 5, 10), draw_sizes("lognormal", 20, 1000, rng(1))
    partition = by_classes(LABELS, owned, sizes, rng(2))
    assert_disjoint(partition, 1000)
    assert len(partition.rows) == 1000
    for client in range(20):
        assert set(LABELS[partition.of(client)]) == set(owned[client])
    assert np.corrcoef(partition.counts, sizes)[0, 1] > 0.9


def test_a_class_with_too_few_examples_names_the_class_and_a_client() -> None:
    with pytest.raises(DataError, match="class 1 has 2 examples and 3 clients own it, client 2 among them; use fewer"):
        by_classes(np.array([0, 1, 1, 0]), np.array([[1], [1], [1]]), np.ones(3, np.int64), rng())


def test_dirichlet_gives_each_client_its_size_and_small_alpha_few_classes() -> None:
    sizes = draw_sizes("power-law", 30, 1000, rng())
    seen = {}
    for alpha in (0.05, 100.0):
        partition = by_dirichlet(LABELS, sizes, alpha, rng(3))
        assert_disjoint(partition, 1000)
        assert partition.counts.tolist() == sizes.tolist()
        seen[alpha] = np.mean([len(set(LABELS[partition.of(client)])) / min(10, sizes[client]) for client in range(30)])
    assert seen[0.05] < 0.5 < seen[100.0]
    with pytest.raises(ConfigError, match="alpha of the Dirichlet distribution is 0"):
        by_dirichlet(LABELS, sizes, 0, rng())


def test_dirichlet_proportions_are_those_of_the_distribution() -> None:
    """With plenty of rows, the variance of a share is (1/C)(1-1/C)/(C alpha + 1) plus that of drawing n rows."""
    labels, alpha, size = np.repeat(np.arange(4), 30_000), 0.5, 100
    partition = by_dirichlet(labels, np.full(600, size), alpha, rng(5))
    first = np.array([(labels[partition.of(client)] == 0).mean() for client in range(600)])
    spread = 0.25 * 0.75 / (4 * alpha + 1)
    expected = spread + (0.25 * 0.75 - spread) / size
    assert first.mean() == pytest.approx(0.25, abs=0.045)
    assert first.var() == pytest.approx(expected, rel=0.15)


def test_iid_uses_every_row_once() -> None:
    partition = at_random(100, np.array([50, 30, 20]), rng())
    assert sorted(partition.rows) == list(range(100))
    assert partition.rows.tolist() != sorted(partition.rows)


def test_a_natural_key_makes_a_client_per_value() -> None:
    partition, names = by_key(np.array(["w2", "w1", "w2", "w3"]))
    assert names == ("w1", "w2", "w3")
    assert [partition.of(client).tolist() for client in range(3)] == [[1], [0, 2], [3]]


def test_every_client_is_split_72_8_20_without_overlap() -> None:
    partition = at_random(1160, np.array([2, 3, 5, 50, 100, 1000]), rng())
    parts = split_parts(partition, rng(1))
    assert [part.counts.tolist() for part in parts] == [
        [1, 2, 4, 36, 72, 720],
        [0, 0, 0, 4, 8, 80],
        [1, 1, 1, 10, 20, 200],
    ]
    for client in range(6):
        together = np.concatenate([part.of(client) for part in parts])
        assert sorted(together) == sorted(partition.of(client))
    again = split_parts(partition, rng(1))
    assert all(np.array_equal(one.rows, other.rows) for one, other in zip(parts, again, strict=True))


def test_a_client_with_one_example_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="client 1 has 1 example, and it needs one to train on"):
        split_parts(Partition(np.arange(6), np.array([3, 1, 2])), rng())


def test_the_last_tenth_is_held_out_rounded_down() -> None:
    train, validation = hold_out_tenth(Partition(np.arange(53), np.array([9, 10, 34])))
    assert validation.counts.tolist() == [0, 1, 3]
    assert validation.rows.tolist() == [18, 50, 51, 52]
    assert sorted([*train.rows, *validation.rows]) == list(range(53))
