"""Checks A and A2: who is isolated, on geometries with a known answer."""

import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import ConfigError, DataError
from holdfast.poisoning import Medoids, class_budgets, gradient_geometry, gradient_medoids


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def planted(clusters: int, scattered: int, seed: int) -> torch.Tensor:
    """Tight clusters of 30 points, and far points that are near nothing."""
    draw = stream(seed)
    centres = 10 * torch.randn(clusters, 8, generator=draw)
    tight = (centres[:, None] + 0.01 * torch.randn(clusters, 30, 8, generator=draw) / 8**0.5).flatten(0, 1)
    far = 100 * F.normalize(torch.randn(scattered, 8, generator=draw), dim=1) * torch.arange(1, scattered + 1)[:, None]
    return torch.cat([tight, far])


def dropped(points: torch.Tensor, k: int, **options) -> set[int]:
    labels = torch.zeros(len(points), dtype=torch.int64)
    medoids = gradient_medoids(points, labels, (k + 0.5) / len(points), stream=stream(), **options)
    assert len(medoids.positions) == k
    assert int(medoids.sizes.sum()) == len(points)
    return set(medoids.positions[medoids.isolated()].tolist())


@pytest.mark.parametrize("seed", range(20))
def test_with_a_medoid_for_each_the_far_points_are_alone(seed: int) -> None:
    points = planted(6, 5, seed)
    assert dropped(points, 11) == set(range(180, 185))


@pytest.mark.parametrize("seed", range(20))
def test_with_fewer_medoids_no_member_of_a_cluster_is_ever_alone(seed: int) -> None:
    points = planted(6, 5, seed)
    for k in range(1, 11):
        assert dropped(points, k) <= set(range(180, 185))


def test_with_more_some_members_are_alone_too() -> None:
    """The method's cost on clean data."""
    assert any(place < 180 for place in dropped(planted(6, 5, 0), 40))


def lonely() -> torch.Tensor:
    """200 near-zero gradients, 30 that are wrong in the same way, 5 of smaller loss in directions of their own."""
    draw = stream()
    quiet = 0.005 * torch.randn(200, 10, generator=draw)
    wrong = F.one_hot(torch.tensor(3), 10) - F.one_hot(torch.tensor(0), 10)
    own = 0.5 * (F.one_hot(torch.arange(4, 9), 10) - F.one_hot(torch.tensor(0), 10))
    return torch.cat([quiet, wrong.expand(30, 10), own]).float()


def test_isolation_is_not_loss() -> None:
    assert dropped(lonely(), 7) == set(range(230, 235))
    many = dropped(lonely(), 47)
    assert set(range(230, 235)) <= many
    assert not many & set(range(200, 230))


def test_copies_are_never_alone() -> None:
    points = torch.randn(60, 5, generator=stream())
    assert not dropped(torch.cat([points, points]), 40)


def test_a_permutation_permutes_the_drop_set() -> None:
    points = torch.randn(150, 6, generator=stream(2))
    order = torch.randperm(150, generator=stream(3))
    assert {int(order[place]) for place in dropped(points[order], 50)} == dropped(points, 50)


def test_kernels_agree_where_points_are_clear() -> None:
    points = planted(6, 5, 1) / 100
    assert dropped(points, 11, metric="exponential") == set(range(180, 185))
    assert dropped(points, 11, stochastic=True) <= set(range(180, 185))


def test_proxies_are_gradients() -> None:
    draw = stream(4)
    features, weight, labels = torch.randn(9, 4, generator=draw), torch.randn(3, 4, generator=draw), torch.arange(9) % 3
    inputs = features.clone().requires_grad_()
    last = weight.clone().requires_grad_()
    logits = inputs @ last.T
    logits.retain_grad()
    F.cross_entropy(logits, labels, reduction="sum").backward()
    residuals = (features @ weight.T).softmax(1) - F.one_hot(labels, 3)
    torch.testing.assert_close(gradient_geometry(residuals, "logits").x, logits.grad, atol=1e-6, rtol=0)  # type: ignore[attr-defined]
    by_input = gradient_geometry(residuals, "last-input", head=weight)
    torch.testing.assert_close(by_input.x, inputs.grad, atol=1e-6, rtol=0)  # type: ignore[attr-defined]
    by_layer = gradient_geometry(residuals, "last-layer", features=features)
    whole = residuals[:, :, None] * torch.cat([features, torch.ones(9, 1)], 1)[:, None]
    expected = torch.cdist(whole.flatten(1).double(), whole.flatten(1).double()).square()
    found = by_layer.squared_distances(torch.arange(9).numpy())(slice(None), slice(None))
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match="its inputs"):
        gradient_geometry(residuals, "last-layer")
    with pytest.raises(ConfigError, match="its weights"):
        gradient_geometry(residuals, "last-input")


def test_the_head_gradient_splits_into_two_parts() -> None:
    """6.2: g_i h_i' - g_j h_j' = (g_i - g_j) h_i' + g_j (h_i - h_j)'."""
    g, h = torch.randn(2, 3, generator=stream()), torch.randn(2, 4, generator=stream(1))
    left = torch.outer(g[0], h[0]) - torch.outer(g[1], h[1])
    torch.testing.assert_close(left, torch.outer(g[0] - g[1], h[0]) + torch.outer(g[1], h[0] - h[1]))


def test_a_constant_on_all_logits_changes_nothing() -> None:
    draw = stream(5)
    logits, labels = torch.randn(80, 4, generator=draw), torch.randint(4, (80,), generator=draw)

    def alone(shifted: torch.Tensor) -> list[int]:
        residuals = shifted.softmax(1) - F.one_hot(labels, 4)
        medoids = gradient_medoids(residuals.double(), labels, 0.3, stream=stream())
        return medoids.positions[medoids.isolated()].tolist()

    assert alone(logits.double()) == alone(logits.double() + 7)


def test_budgets_sum_to_the_fraction() -> None:
    sizes = torch.tensor([500, 301, 150, 49])
    budgets = class_budgets(sizes, 0.1, stream=stream())
    assert sum(budgets) == 100
    assert all(abs(budget - size / 10) <= 1 for budget, size in zip(budgets, sizes.tolist(), strict=True))
    assert class_budgets(sizes, 0.1, equal=True, stream=stream()) == [25, 25, 25, 25]


def test_never_more_than_half_of_a_class() -> None:
    assert class_budgets(torch.tensor([10, 1, 3]), 0.9, stream=stream()) == [9, 0, 2]


def test_classes_have_their_own_medoids() -> None:
    points, labels = torch.randn(90, 4, generator=stream()), torch.arange(90) % 3
    medoids = gradient_medoids(points, labels, 0.2, stream=stream())
    assert torch.equal(labels[medoids.positions], medoids.classes)
    for label in range(3):
        assert int(medoids.sizes[medoids.classes == label].sum()) == 30


def test_a_pool_is_all_that_counts() -> None:
    points, labels = torch.randn(90, 4, generator=stream()), torch.zeros(90, dtype=torch.int64)
    pool = torch.arange(0, 90, 2)
    medoids = gradient_medoids(points, labels, 0.2, stream=stream(), pool=pool)
    assert len(medoids.positions) == 9
    assert set(medoids.positions.tolist()) <= set(pool.tolist())


def test_larger_clusters_can_count_as_isolated() -> None:
    medoids = Medoids(torch.arange(4), torch.zeros(4), torch.tensor([0, 1, 2, 3]))
    assert medoids.isolated().tolist() == [False, True, False, False]
    assert medoids.isolated(2).tolist() == [False, True, True, False]


def test_what_makes_no_sense() -> None:
    points, labels = torch.randn(9, 4), torch.zeros(9, dtype=torch.int64)
    with pytest.raises(ConfigError, match="fraction of medoids is 1"):
        gradient_medoids(points, labels, 1.0, stream=stream())
    with pytest.raises(DataError, match="9 gradients"):
        gradient_medoids(points, labels[:3], 0.5, stream=stream())
    few = gradient_medoids(points[:1], labels[:1], 0.5, stream=stream())
    assert len(few.positions) == 0
