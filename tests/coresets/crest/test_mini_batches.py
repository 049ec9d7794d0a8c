import numpy as np
import pytest
import torch

from holdfast.coresets.crest.mini_batches import SubsetCandidates, cluster_weights, mini_batch_coresets, quotas
from holdfast.data.apportionment import apportion
from holdfast.errors import ConfigError


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def cloud(n, d=5, seed=0):
    return torch.randn(n, d, generator=stream(seed))


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [
        ([50, 50, 50], 30, [10, 10, 10]),
        ([60, 38, 0, 2], 10, [5, 4, 0, 1]),
        ([1, 1, 98], 10, [1, 1, 8]),
        ([1, 1, 1, 1], 2, None),
        ([7, 3], 10, [7, 3]),
    ],
)
def test_quotas_add_up_and_leave_no_class_out_where_they_can(counts, total, expected):
    found = quotas(torch.tensor(counts), total)
    assert sum(found) == total
    assert all(0 <= share <= count for share, count in zip(found, counts, strict=True))
    assert expected is None or found == expected


@pytest.mark.parametrize("by_class", [True, False])
def test_subsets_are_drawn_without_replacement_from_the_pool(by_class):
    labels = torch.arange(300) % 3
    positions = torch.arange(0, 300, 2)
    pool = SubsetCandidates(positions, labels, by_class=by_class)
    drawn = pool.draw(60, stream())
    assert len(set(drawn.tolist())) == 60
    assert set(drawn.tolist()) <= set(positions.tolist())
    if by_class:
        assert torch.bincount(labels[drawn]).tolist() == [20, 20, 20]
    assert torch.equal(drawn, pool.draw(60, stream()))


def test_classes_are_drawn_from_one_after_the_other_where_they_are_there():
    """By their definition: a random part of each class, whose members are in the order of the pool."""
    labels = torch.tensor([0, 2, 2, 0, 5]).repeat(80)[torch.randperm(400, generator=stream())]
    positions = torch.randperm(400, generator=stream())[:280]
    of_class = [positions[labels[positions] == label] for label in (0, 2, 5)]
    shares, by = apportion(101, np.array([len(part) for part in of_class], dtype=float)), stream()
    expected = [
        part[torch.randperm(len(part), generator=by)[:share]] for part, share in zip(of_class, shares, strict=True)
    ]
    assert torch.equal(SubsetCandidates(positions, labels, by_class=True).draw(101, stream()), torch.cat(expected))


def mean_counts(pool, labels, size, draws):
    by, classes = stream(), int(labels.max()) + 1
    counts = [torch.bincount(labels[pool.draw(size, by)], minlength=classes) for _ in range(draws)]
    return torch.stack(counts).double().mean(0)


@pytest.mark.parametrize(("counts", "size"), [([20] * 100, 128), ([20] * 100, 512), ([1495, 1495, 10], 128)])
def test_no_class_is_in_subsets_too_often_or_never_because_it_is_small(counts, size):
    """With shares of 1.28, 5.12 and 0.43 places; largest remainders gave some classes twice as many, others none."""
    labels = torch.repeat_interleave(torch.tensor(counts))
    found = mean_counts(SubsetCandidates(torch.arange(len(labels)), labels, by_class=True), labels, size, 2000)
    expected = size * torch.tensor(counts).double() / sum(counts)
    assert bool(((found - expected).abs() < 5 * (expected / 2000).sqrt()).all())


@pytest.mark.parametrize("by_class", [True, False])
def test_what_is_to_come_more_often_does(by_class):
    labels, visits = torch.arange(200) % 2, torch.ones(200, dtype=torch.float64)
    visits[:20], visits[20:60] = 7, 0
    pool, by = SubsetCandidates(torch.arange(200), labels, by_class=by_class, visits=visits), stream()
    drawn = torch.cat([pool.draw(50, by) for _ in range(400)])
    assert len(drawn) == 20_000
    found, expected = torch.bincount(drawn, minlength=200).double(), 20_000 * visits / visits.sum()
    assert bool((found[20:60] == 0).all())
    assert bool(((found - expected).abs() <= 5 * expected.sqrt()).all())


def test_equal_visits_are_no_visits():
    labels, positions = torch.arange(300) % 3, torch.arange(300)
    plain = SubsetCandidates(positions, labels, by_class=True).draw(90, stream())
    alike = SubsetCandidates(positions, labels, by_class=True, visits=torch.full((300,), 2.0, dtype=torch.float64))
    assert torch.equal(alike.draw(90, stream()), plain)


def test_a_mini_batch_with_fewer_places_than_classes_is_chosen_from_all_of_them_alike():
    proxies, labels = torch.randn(60, 4, generator=stream()), torch.arange(60) % 30
    few, all_alike = (mini_batch_coresets(proxies, labels, 1, 20, by_class=by_class)[0] for by_class in (True, False))
    assert torch.equal(few.chosen, all_alike.chosen)
    assert torch.equal(few.weights, all_alike.weights)
    (enough,) = mini_batch_coresets(proxies, labels, 1, 30)
    assert torch.bincount(labels[enough.chosen]).tolist() == [1] * 30


@pytest.mark.parametrize("by_class", [True, False])
def test_a_mini_batch_has_its_size_and_weights_that_count_the_subset(by_class):
    proxies, labels = cloud(3 * 80), torch.arange(240) % 3
    for number, found in enumerate(mini_batch_coresets(proxies, labels, 3, 20, by_class=by_class)):
        assert len(set(found.chosen.tolist())) == 20
        assert float(found.weights.mean()) == pytest.approx(1)
        sizes = found.weights * 80 / 20
        assert torch.allclose(sizes, sizes.round(), atol=1e-4)
        here = slice(80 * number, 80 * (number + 1))
        x, y = proxies[here], labels[here]
        distance = torch.cdist(x, x[found.chosen])
        if by_class:
            distance[y[:, None] != y[found.chosen]] = torch.inf
        nearest = distance.argmin(1)
        assert torch.equal(torch.bincount(nearest, minlength=20).float(), sizes.round())


@pytest.mark.parametrize("by_class", [True, False])
def test_the_mean_is_off_by_at_most_the_mean_distance_to_the_medoids(by_class):
    for seed in range(20):
        proxies, labels = cloud(60, 4, seed), torch.randint(3, (60,), generator=stream(seed))
        (batches,) = mini_batch_coresets(proxies, labels, 1, 12, by_class=by_class)
        distance = torch.cdist(proxies, proxies[batches.chosen])
        if by_class:
            distance[labels[:, None] != labels[batches.chosen]] = torch.inf
        bound = float(distance.min(1).values.mean())
        weighted = (batches.weights[:, None] * proxies[batches.chosen]).mean(0)
        assert float((weighted - proxies.mean(0)).norm()) <= bound + 1e-5


def test_copies_have_positive_weights():
    proxies = cloud(4).repeat(10, 1)
    (batches,) = mini_batch_coresets(proxies, torch.zeros(40, dtype=torch.int64), 1, 8)
    assert bool((batches.weights > 0).all())
    assert float(batches.weights.mean()) == pytest.approx(1)
    assert cluster_weights(torch.tensor([4.0, 0.0])).tolist() == pytest.approx([1.6, 0.4])


def test_many_subsets_at_once_give_what_each_gives_alone():
    proxies, labels = cloud(4 * 50), torch.randint(3, (200,), generator=stream(1))
    together = mini_batch_coresets(proxies, labels, 4, 11)
    for number, found in enumerate(together):
        here = slice(50 * number, 50 * (number + 1))
        (alone,) = mini_batch_coresets(proxies[here], labels[here], 1, 11)
        assert torch.equal(found.chosen, alone.chosen)
        assert torch.equal(found.weights, alone.weights)


def test_a_mini_batch_larger_than_its_subset_is_refused():
    with pytest.raises(ConfigError, match="from a subset of 10; give at most as many"):
        mini_batch_coresets(cloud(10), torch.zeros(10, dtype=torch.int64), 1, 11)
