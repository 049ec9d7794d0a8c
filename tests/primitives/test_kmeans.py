from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from holdfast.errors import ConfigError, DataError
from holdfast.primitives import kmeans as module
from holdfast.primitives.kmeans import canonical_order, kmeans


def blobs(n, d, k, spread, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = 4 * torch.randn(k, d, generator=generator, dtype=torch.float64)
    chosen = torch.randint(k, (n,), generator=generator)
    return centres[chosen] + spread * torch.randn(n, d, generator=generator, dtype=torch.float64)


def by_sklearn(points, k):
    return float(KMeans(k, n_init=10, random_state=1, tol=0).fit(points.numpy()).inertia_)


def best_cuts(values, k):
    """Every way to cut the sorted distinct values into k intervals."""
    different = np.unique(values)
    best = np.inf
    for cuts in combinations(different[1:], min(k, len(different)) - 1):
        interval = np.searchsorted(cuts, values, side="right")
        parts = [values[interval == i] for i in np.unique(interval)]
        best = min(best, sum(((part - part.mean()) ** 2).sum() for part in parts))
    return best


def test_numbers_are_cut_optimally():
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = np.round(rng.choice([1, 10]) * rng.random(rng.integers(1, 12)), rng.integers(0, 4))
        k = int(rng.integers(1, 5))
        clustering = kmeans(torch.from_numpy(values)[:, None], k)
        assert clustering.k == min(k, len(np.unique(values)))
        assert clustering.inertia == pytest.approx(best_cuts(values, k), abs=1e-9)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_separated_clusters_have_the_inertia_of_scikit_learn(d, k):
    points = blobs(400, d, k, spread=0.02, seed=d)
    assert kmeans(points, k).inertia == pytest.approx(by_sklearn(points, k), rel=1e-6)


@pytest.mark.parametrize("d", [1, 2, 8])
def test_without_structure_the_inertia_is_not_a_hundredth_worse(d):
    points = torch.randn(600, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    for k in (2, 4, 7):
        assert kmeans(points, k).inertia <= 1.01 * by_sklearn(points, k)


def test_a_line_in_the_plane_is_clustered_like_its_coordinate():
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))
    softmax = torch.stack([logits, -logits], 1).softmax(1)
    found, along = kmeans(softmax, 4), kmeans(softmax[:, :1], 4)
    assert found.method == along.method == "intervals"
    assert torch.equal(found.clusters, along.clusters)
    assert found.inertia == pytest.approx(2 * along.inertia, rel=1e-5)


@pytest.mark.parametrize("d", [1, 3])
def test_the_description_fits_the_clusters(d):
    points = blobs(300, d, 4, spread=0.5, seed=3)
    clustering = kmeans(points, 4)
    sizes = torch.bincount(clustering.clusters).tolist()
    assert sizes == sorted(sizes, reverse=True)
    means = torch.stack([points[clustering.clusters == j].mean(0) for j in range(4)])
    assert torch.allclose(clustering.centres, means)
    assert clustering.inertia == pytest.approx(float((points - means[clustering.clusters]).square().sum()))
    nearest = torch.cdist(points, means).argmin(1)
    assert torch.equal(nearest, clustering.clusters)


def test_a_seed_names_the_result_and_global_generators_are_left_alone():
    points = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    one, same = kmeans(points, 5, seed=3, restarts=1), kmeans(points, 5, seed=3, restarts=1)
    assert torch.equal(one.clusters, same.clusters)
    assert len({kmeans(points, 5, seed=s, restarts=1).inertia for s in range(8)}) > 1
    assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.fixture
def many(monkeypatch):
    """A thousand points are many."""
    monkeypatch.setattr(module, "_MANY", 1000)


@pytest.mark.parametrize("d", [2, 8, 40])
def test_starts_on_a_sample_end_about_as_well_as_starts_on_all_points(d, many):
    loose = torch.randn(3000, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    tight = blobs(3000, d, 6, spread=0.3, seed=d)
    for points in (loose, tight):
        for k in (2, 4, 6):
            labels = module._lloyd(points, k, seed=0, restarts=10)
            reference = module._described(points, labels, "lloyd").inertia
            assert kmeans(points, k).inertia <= 1.02 * reference


def test_small_clusters_far_out_are_found_among_many_points(many):
    generator = torch.Generator().manual_seed(0)
    corner = torch.arange(4).repeat_interleave(torch.tensor([9700, 200, 60, 40]))
    points = torch.eye(4)[corner] + 0.05 * torch.randn(len(corner), 4, generator=generator)
    for seed in range(5):
        assert torch.equal(kmeans(points, 4, seed=seed).clusters, corner)


def test_many_points_are_clustered_as_the_seed_says_and_around_their_centres(many):
    points = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    one, same = kmeans(points, 5, seed=3), kmeans(points, 5, seed=3)
    assert torch.equal(one.clusters, same.clusters)
    assert len({kmeans(points, 5, seed=s, restarts=1).inertia for s in range(8)}) > 1
    assert torch.equal(torch.cdist(points.double(), one.centres).argmin(1), one.clusters)
    assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])


def test_many_points_of_few_kinds_give_as_many_clusters(many):
    plane = torch.tensor([[0.0, 0], [1, 0], [0, 1]]).repeat(1000, 1)
    plane[17] = torch.tensor([5.0, 5.0])
    clustering = kmeans(plane, 6)
    assert (clustering.k, clustering.inertia) == (4, 0.0)


def test_fewer_different_points_give_fewer_clusters():
    plane = torch.tensor([[0.0, 0], [1, 0], [0, 1]]).repeat(5, 1)
    clustering = kmeans(plane, 5)
    assert (clustering.k, clustering.inertia) == (3, 0.0)
    assert kmeans(torch.full((4, 2), 0.3), 2).k == 1


def test_the_canonical_order_forgets_the_order_given():
    points = torch.randint(3, (60, 3), generator=torch.Generator().manual_seed(0)) - 1.0
    points[0] = -0.0
    shuffled = points[torch.randperm(60, generator=torch.Generator().manual_seed(1))]
    assert torch.equal(points[canonical_order(points)], shuffled[canonical_order(shuffled)])


@pytest.mark.parametrize(
    ("points", "k", "error"),
    [
        (torch.zeros(3, 1), 0, ConfigError),
        (torch.zeros(3), 2, DataError),
        (torch.zeros(0, 2), 2, DataError),
        (torch.tensor([[0.0], [torch.inf]]), 2, DataError),
    ],
)
def test_what_cannot_be_clustered_is_refused(points, k, error):
    with pytest.raises(error):
        kmeans(points, k)
