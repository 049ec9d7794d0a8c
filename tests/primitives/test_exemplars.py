from itertools import pairwise

import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.primitives.exemplars import exemplar_clustering, exemplar_path
from holdfast.primitives.facility_location import facility_location


def rays(sizes, spread=0.05, d=4, seed=0):
    """Points around orthogonal directions, at different distances from the origin. Returns also the true cluster."""
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    directions = torch.eye(d, dtype=torch.float64)[clusters]
    points = directions + spread * torch.randn(len(clusters), d, generator=generator, dtype=torch.float64)
    return points * (1 + 9 * torch.rand(len(clusters), 1, generator=generator, dtype=torch.float64)), clusters


def cosines(points):
    unit = points / points.norm(dim=1, keepdim=True)
    return unit @ unit.T


def test_directions_are_found_and_numbered_by_size():
    points, truth = rays([60, 30, 10])
    order = torch.randperm(100, generator=torch.Generator().manual_seed(1))
    clustering = exemplar_clustering(points[order], 3)
    assert torch.equal(clustering.clusters, truth[order])
    assert torch.equal(clustering.clusters[clustering.exemplars], torch.arange(3))
    assert clustering.k == 3


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_clusters_are_those_of_the_naive_greedy_exemplars(k):
    points = torch.randn(120, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    clustering = exemplar_clustering(points, k)
    expected = facility_location(1 + cosines(points), k, metric="precomputed", method="naive")
    assert sorted(clustering.exemplars.tolist()) == sorted(expected.chosen.tolist())
    assert torch.equal(clustering.exemplars[clustering.clusters], expected.chosen[expected.assignment])
    sizes = torch.bincount(clustering.clusters).tolist()
    assert sizes == sorted(sizes, reverse=True)


def test_every_point_is_in_the_cluster_of_its_most_similar_exemplar():
    points, _ = rays([50, 40, 30], spread=0.6)
    clustering = exemplar_clustering(points, 6)
    assert torch.equal(cosines(points)[:, clustering.exemplars].argmax(1), clustering.clusters)


def test_the_path_holds_what_each_number_of_clusters_gives_and_is_nested():
    points, _ = rays([50, 40, 30], spread=0.4)
    path = exemplar_path(points, 7)
    assert [found.k for found in path] == [1, 2, 3, 4, 5, 6, 7]
    for fewer, more in pairwise(path):
        assert set(fewer.exemplars.tolist()) < set(more.exemplars.tolist())
    for found in path:
        alone = exemplar_clustering(points, found.k)
        assert torch.equal(found.clusters, alone.clusters)
        assert torch.equal(found.exemplars, alone.exemplars)


def test_many_points_choose_among_a_sample_that_the_seed_names():
    points, truth = rays([700, 250, 50])
    clustering = exemplar_clustering(points, 3, seed=4, limit=100)
    assert torch.equal(clustering.clusters, truth)
    assert torch.equal(exemplar_clustering(points, 3, seed=4, limit=100).exemplars, clustering.exemplars)
    others = {tuple(exemplar_clustering(points, 3, seed=seed, limit=100).exemplars.tolist()) for seed in range(5)}
    assert len(others) > 1
    path = exemplar_path(points, 60, limit=20)
    assert path[-1].k == 60


def test_fewer_directions_give_fewer_clusters():
    points = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 1.0], [5.0, 0.0]])
    found = exemplar_clustering(points, 4)
    assert found.clusters.tolist() == [0, 0, 1, 1, 0]
    assert [found.k for found in exemplar_path(points, 9)] == [1, 2]
    assert exemplar_clustering(torch.full((3, 2), 0.5), 2).k == 1


def test_what_cannot_be_clustered_is_refused():
    with pytest.raises(ConfigError, match="k is 0"):
        exemplar_clustering(torch.ones(3, 2), 0)
    with pytest.raises(DataError, match="n at least 1"):
        exemplar_clustering(torch.ones(0, 2), 2)
    with pytest.raises(DataError, match="not finite"):
        exemplar_clustering(torch.full((3, 2), torch.nan), 2)
