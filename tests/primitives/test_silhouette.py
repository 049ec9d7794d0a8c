import pytest
import torch

from holdfast.errors import DataError
from holdfast.primitives import silhouette as module
from holdfast.primitives.silhouette import line_coordinates, silhouette, silhouette_score


def brute_force(points, clusters, power=1):
    """The definition, a point at a time; with power 2 for root mean square distances."""
    points = points.double()
    scores = []
    for i in range(len(points)):
        distance = (points - points[i]).square().sum(1) ** (power / 2)
        own = clusters == clusters[i]
        if own.sum() == 1:
            scores.append(0.0)
            continue
        a = (distance[own].sum() / (own.sum() - 1)) ** (1 / power)
        b = min(distance[clusters == c].mean() for c in clusters.unique() if c != clusters[i]) ** (1 / power)
        scores.append(float((b - a) / max(a, b)) if max(a, b) > 0 else 0.0)
    return torch.tensor(scores, dtype=torch.float64)


def blobs(n, d, k, seed=0, spread=0.4):
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.randint(k, (n,), generator=generator)
    centres = torch.randn(k, d, generator=generator, dtype=torch.float64)
    return centres[clusters] + spread * torch.randn(n, d, generator=generator, dtype=torch.float64), clusters


@pytest.mark.parametrize("d", [1, 2, 5, 8, 9, 40])
@pytest.mark.parametrize("k", [2, 4])
def test_scores_equal_the_definition(d, k):
    points, clusters = blobs(90, d, k, seed=d + k)
    clusters[3] = 77  # a cluster of one, and a gap in the numbers
    scores = silhouette(points, clusters)
    assert scores[3] == 0
    assert torch.allclose(scores, brute_force(points, clusters), atol=1e-8, rtol=0)


def test_blocks_of_any_size_give_the_same(monkeypatch):
    points, clusters = blobs(90, 3, 4)
    whole = silhouette(points, clusters)
    monkeypatch.setattr(module, "_BLOCK", 200)
    assert torch.allclose(silhouette(points, clusters), whole, atol=1e-12, rtol=0)


def test_repeated_points_score_like_the_definition():
    line = torch.tensor([0.0, 0, 0, 1, 1, 2, 2, 2], dtype=torch.float64)[:, None]
    clusters = torch.tensor([0, 0, 1, 1, 1, 2, 2, 0])
    plane = torch.cat([line, line**2], 1)
    for points in (line, plane, torch.zeros(8, 1, dtype=torch.float64)):
        assert torch.allclose(silhouette(points, clusters), brute_force(points, clusters), atol=1e-8, rtol=0)


def test_the_softmax_of_two_classes_is_a_line_and_that_of_three_is_not():
    logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    two, three = logits[:, :2].softmax(1), logits.softmax(1)
    clusters = (logits[:, 0] > 0).long() + (logits[:, 0] > 1).long()
    assert silhouette_score(two, clusters).method == "sorted"
    assert silhouette_score(three, clusters).method == "exact"
    for points in (two, three):
        assert silhouette_score(points, clusters).value == pytest.approx(
            float(brute_force(points, clusters).mean()), abs=1e-6
        )


def test_coordinates_keep_distances_and_forget_the_order():
    t = torch.randn(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    points = torch.tensor([1.0, -2, 0.5], dtype=torch.float64) + t[:, None] * torch.tensor([0.3, 4, 0]).double()
    coordinates = line_coordinates(points)
    apart = (points[:, None] - points).norm(dim=2)
    assert torch.allclose((coordinates[:, None] - coordinates).abs(), apart)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    assert torch.equal(line_coordinates(points[order]), coordinates[order])


def test_one_point_off_the_line_is_noticed():
    points = torch.linspace(0, 1, 5000)[:, None].repeat(1, 2)
    assert line_coordinates(points) is not None
    points[4321, 0] += 1e-4
    assert line_coordinates(points) is None


@pytest.mark.parametrize("d", [3, 30])
def test_a_sample_agrees_with_the_whole_and_knows_its_error(d):
    points, clusters = blobs(3000, d, 4, spread=0.8)
    exact = silhouette_score(points, clusters)
    estimates = [silhouette_score(points, clusters, seed=seed, limit=2000, sample=500) for seed in range(30)]
    assert exact.method == "exact"
    assert {estimate.method for estimate in estimates} == {"sampled"}
    misses = torch.tensor([estimate.value - exact.value for estimate in estimates])
    errors = torch.tensor([estimate.standard_error for estimate in estimates])
    assert float(misses.abs().max()) < 0.005
    assert float(misses.mean().abs()) < 0.001
    actual = float(misses.square().mean().sqrt())
    assert 0.6 < float(errors.mean()) / actual < 2
    assert silhouette_score(points, clusters, limit=1000) == silhouette_score(points, clusters, limit=1000)


def test_the_default_sample_is_within_a_hundredth():
    points, clusters = blobs(12_000, 2, 3)
    whole = silhouette_score(points, clusters, limit=12_000)
    sampled = silhouette_score(points, clusters)
    assert (whole.method, sampled.method) == ("exact", "sampled")
    assert sampled.value == pytest.approx(whole.value, abs=0.01)


def test_one_large_cluster_and_small_ones_are_within_a_hundredth():
    """Softmax outputs as SPARE sees them: 95 % of a class in one corner, the rest in others."""
    generator = torch.Generator().manual_seed(0)
    shown = torch.multinomial(torch.tensor([0.95, 0.03, 0.015, 0.005]), 4000, replacement=True, generator=generator)
    logits = torch.randn(4000, 4, generator=generator) + 3 * torch.eye(4)[shown]
    points = logits.softmax(1)
    for clusters in (shown, logits.argmax(1), (shown > 0).long()):
        exact = silhouette_score(points, clusters).value
        for seed in range(5):
            estimate = silhouette_score(points, clusters, seed=seed, limit=3000)
            assert estimate.value == pytest.approx(exact, abs=0.01)


def test_the_score_by_root_mean_squares_equals_its_definition(monkeypatch):
    points, clusters = blobs(120, 3, 4)
    clusters[7] = 4
    expected = float(brute_force(points, clusters, power=2).mean())
    for block in (2**20, 100):
        monkeypatch.setattr(module, "_BLOCK", block)
        score = module._rms_score(points + 1000, clusters, torch.bincount(clusters))
        assert score == pytest.approx(expected, abs=1e-9)


def test_small_clusters_enter_a_sample_whole_and_large_ones_with_enough(monkeypatch):
    points, clusters = blobs(4000, 2, 2)
    clusters[:150], clusters[150:151], clusters[151:451] = 2, 3, 4
    seen = {}
    original = module._distance_sums

    def spy(sampled, cells, n_codes):
        seen["sizes"] = torch.bincount(cells % (n_codes // module._JACKKNIFE_GROUPS)).tolist()
        return original(sampled, cells, n_codes)

    monkeypatch.setattr(module, "_distance_sums", spy)
    silhouette_score(points, clusters, limit=1000, sample=800)
    assert seen["sizes"][2:4] == [150, 1]
    assert 790 <= sum(seen["sizes"]) <= 800
    assert min(seen["sizes"][0], seen["sizes"][1], seen["sizes"][4]) >= 100
    silhouette_score(points, clusters, limit=1000, sample=1)
    assert seen["sizes"] == [100, 100, 150, 1, 100]


@pytest.mark.parametrize(
    ("points", "clusters", "words"),
    [
        (torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), "there is 1; give at least 2"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), r"give \(n, d\) and \(n,\)"),
        (torch.full((3, 2), torch.nan), torch.tensor([0, 1, 1]), "not finite"),
    ],
)
def test_what_has_no_silhouette_is_refused(points, clusters, words):
    with pytest.raises(DataError, match=words):
        silhouette(points, clusters)
