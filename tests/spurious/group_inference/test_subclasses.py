import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples

from holdfast.errors import DataError
from holdfast.spurious.group_inference.subclasses import (
    choose_clusters,
    mean_cluster_silhouette,
    split_further,
    subclasses,
)


def blobs(*shapes: tuple[int, float, float, float], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around centres, each given as (size, x, y, spread), and which centre each is from."""
    generator = torch.Generator().manual_seed(seed)
    points = [torch.tensor([x, y]) + spread * torch.randn(n, 2, generator=generator) for n, x, y, spread in shapes]
    return torch.cat(points), torch.repeat_interleave(torch.tensor([n for n, *_ in shapes]))


def same_partition(left: torch.Tensor, right: torch.Tensor) -> bool:
    pairs = torch.unique(torch.stack([left, right]), dim=1).shape[1]
    return pairs == len(torch.unique(left)) == len(torch.unique(right))


def test_the_score_is_the_mean_over_clusters_of_scikit_learns_silhouettes():
    points, clusters = blobs((60, 0, 0, 1), (20, 2, 2, 0.5), (5, 0, 4, 0.3))
    samples = silhouette_samples(points.numpy(), clusters.numpy())
    by_cluster = [samples[clusters.numpy() == j].mean() for j in range(3)]
    assert mean_cluster_silhouette(points, clusters) == pytest.approx(np.mean(by_cluster), abs=1e-6)
    assert abs(np.mean(by_cluster) - samples.mean()) > 0.02


def test_the_number_of_clusters_is_chosen_by_clusters_and_not_by_points():
    points, from_centre = blobs((100, 0, 0, 0.5), (100, 2, 0, 0.5), (5, 1, 2.8, 0.02))
    tried = {2: (from_centre == 2).long(), 3: from_centre}
    by_points = {k: silhouette_samples(points.numpy(), found.numpy()).mean() for k, found in tried.items()}
    assert by_points[3] > by_points[2]
    found, score = choose_clusters(points, lambda _, k: tried[k], 3)
    assert same_partition(found, tried[2])
    assert score == mean_cluster_silhouette(points, tried[2])


def test_the_smallest_number_of_clusters_is_taken_on_ties():
    points = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    same = torch.tensor([0, 0, 1, 1])
    calls = []

    def into(_, k):
        calls.append(k)
        return same if k < 4 else torch.arange(4)

    codes, _ = choose_clusters(points, into, 9)
    assert calls == [2, 3, 4]
    assert codes.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("clustering", ["gmm", "kmeans"])
def test_planted_subclasses_are_found_in_every_class_and_numbered_by_size(clustering):
    first, in_first = blobs((20, 0, 0, 0.2), (80, 5, 0, 0.2), seed=1)
    second, in_second = blobs((60, 0, 5, 0.2), (30, 5, 5, 0.2), (10, 2, 9, 0.2), seed=2)
    points, labels = torch.cat([first, second]), torch.repeat_interleave(torch.tensor([100, 100]))
    codes = subclasses(points, labels, torch.zeros(200), clustering=clustering, k_max=5)
    assert codes[:100].tolist() == (1 - in_first).tolist()
    assert codes[100:].tolist() == in_second.tolist()


def test_clusters_do_not_depend_on_the_order_of_the_examples():
    points, _ = blobs((80, 0, 0, 1), (40, 3, 0, 1), seed=3)
    labels, losses = torch.zeros(120, dtype=torch.int64), points.norm(dim=1)
    shuffled = torch.randperm(120, generator=torch.Generator().manual_seed(5))
    codes = subclasses(points, labels, losses, k_max=4, overcluster=3)
    assert torch.equal(codes[shuffled], subclasses(points[shuffled], labels, losses[shuffled], k_max=4, overcluster=3))


def test_a_class_of_identical_points_stays_whole():
    points, labels = torch.tensor([[1.0], [1.0], [0.0], [4.0]]), torch.tensor([0, 0, 1, 1])
    assert subclasses(points, labels, torch.zeros(4)).tolist() == [0, 0, 0, 1]


def test_a_sample_of_many_points_gives_nearly_the_same_score(monkeypatch):
    points, clusters = blobs((3000, 0, 0, 1), (700, 3, 0, 0.5), (40, 0, 4, 0.5))
    exact = mean_cluster_silhouette(points, clusters)
    monkeypatch.setattr("holdfast.spurious.group_inference.subclasses._SAMPLE", 1000)
    sampled = mean_cluster_silhouette(points, clusters)
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=0.03)


CLUSTERS = torch.tensor([0] * 300 + [1] * 100)


def halves(hard: int, apart: float, seed: int = 0) -> torch.Tensor:
    """Two clusters; the first has `hard` points that lie `apart` from its others."""
    points, _ = blobs((300, 0, 0, 0.2), (100, 9, 9, 0.2), seed=seed)
    points[:hard, 0] += apart
    return points


def cut_at(hard: int):
    """Splits off the first points of the first cluster, and nothing of the second."""

    def into(points, k):
        return (torch.arange(len(points)) < hard).long() if len(points) == 300 else torch.zeros(100, dtype=torch.int64)

    return into


def losses_of_first(hard: int, loss: float) -> torch.Tensor:
    return torch.where(torch.arange(400) < hard, loss, 1.0)


def test_a_part_that_is_apart_and_harder_becomes_a_cluster():
    codes = split_further(halves(40, 3.0), CLUSTERS, losses_of_first(40, 2.0), 2, cut_at(40))
    assert codes.tolist() == [2] * 40 + [0] * 260 + [1] * 100


@pytest.mark.parametrize(
    ("hard", "apart", "loss"),
    [(40, 0.0, 2.0), (40, 3.0, 1.0), (40, 3.0, 0.5), (24, 3.0, 2.0)],
    ids=["not apart", "no harder", "easier", "too small"],
)
def test_other_parts_stay_where_they_were(hard, apart, loss):
    codes = split_further(halves(hard, apart), CLUSTERS, losses_of_first(hard, loss), 2, cut_at(hard))
    assert torch.equal(codes, CLUSTERS)


def test_a_part_must_have_half_a_percent_of_a_large_class():
    points, _ = blobs((6000, 0, 0, 0.2), (600, 9, 9, 0.2))
    points = points[:, :1].contiguous()
    points[:32, 0] += 3
    clusters, losses = (torch.arange(6600) >= 6000).long(), (torch.arange(6600) < 33).float()

    def into(members, k):
        return (torch.arange(len(members)) < hard).long() if len(members) == 6000 else torch.zeros(600).long()

    hard = 32
    assert torch.equal(split_further(points, clusters, losses, 2, into), clusters)
    points[32, 0] += 3
    hard = 33
    assert torch.bincount(split_further(points, clusters, losses, 2, into)).tolist() == [5967, 600, 33]


def test_overclustering_finds_a_hard_part_that_the_first_round_merged():
    points, planted = blobs((300, 0, 0, 0.2), (40, 1.5, 0, 0.2), (100, 3, 5, 0.2), seed=4)
    labels, losses = torch.zeros(440, dtype=torch.int64), (planted == 1).float()
    assert same_partition(subclasses(points, labels, losses, clustering="kmeans"), (planted == 2).long())
    codes = subclasses(points, labels, losses, clustering="kmeans", overcluster=2)
    assert same_partition(codes, planted)


def test_what_has_no_clusters_is_refused():
    labels = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(DataError, match=r"shape \(3, 1\), and there are 3 labels and 2 losses"):
        subclasses(torch.zeros(3, 1), labels, torch.zeros(2))
    with pytest.raises(DataError, match="not finite"):
        subclasses(torch.full((3, 1), torch.nan), labels, torch.zeros(3))
