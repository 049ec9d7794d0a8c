"""A7: both sides of each bound, on random quadratics and random clusters."""

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.finetuning.selection.analysis import evenness, homogeneity, rank_correlation, selection_cost, within_share
from holdfast.theory.s2l import (
    Quadratics,
    convergence_bound,
    directional_bound,
    norm_bound,
    subset_gradient,
    subset_gradient_bound,
    target_distance,
)


def random_quadratics(
    draw: np.random.Generator, n: int, p: int, *, shared: bool = False, scale: float = 1.0
) -> Quadratics:
    roots = draw.standard_normal((1 if shared else n, p, p))
    curvature = np.broadcast_to(np.einsum("nij,nkj->nik", roots, roots) * (scale / p), (n, p, p))
    return Quadratics(curvature, draw.standard_normal((n, p)), draw.standard_normal(n))


def test_near_on_the_proxy_is_near_on_the_target() -> None:
    draw = np.random.default_rng(0)
    for _ in range(500):
        proxy = draw.standard_normal((2, 6))
        target = proxy + 0.3 * draw.standard_normal((2, 6))
        transfer = np.linalg.norm(proxy - target, axis=1).max()
        apart = np.linalg.norm(target[0] - target[1])
        assert apart <= target_distance(float(np.linalg.norm(proxy[0] - proxy[1])), float(transfer)) + 1e-12


def both_bounds(curvature: float, *, shared: bool = False, sharpened: bool = False) -> tuple[int, int]:
    """Of 2,000 random pairs and paths: how many break the bound along the path, and how many the one for the norm."""
    draw, along, of_norm = np.random.default_rng(1), 0, 0
    for _ in range(2000):
        p = int(draw.integers(2, 6))
        pair = random_quadratics(draw, 2, p, shared=shared, scale=curvature)
        path = draw.standard_normal((4, p))
        losses = pair.losses(path)
        distance = float(np.linalg.norm(losses[0] - losses[1]))
        radius = float(np.linalg.norm(path, axis=1).max())
        largest = 0.0 if sharpened else float(np.linalg.norm(pair.curvature, 2, axis=(1, 2)).max())
        steps, apart = path[:, None] - path, pair.gradients[0] - pair.gradients[1]
        shortest = float(np.linalg.norm(steps, axis=2)[np.triu_indices(4, 1)].min())
        along += bool((np.abs(steps @ apart) > directional_bound(distance, largest, radius) + 1e-9).any())
        of_norm += bool(np.linalg.norm(apart) > norm_bound(distance, largest, radius, shortest) + 1e-9)
    return along, of_norm


@pytest.mark.parametrize("curvature", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_close_along_the_path(curvature: float, shared: bool) -> None:
    assert both_bounds(curvature, shared=shared)[0] == 0


def test_of_equal_curvatures_the_distance_alone_bounds_gradients_along_the_path() -> None:
    along, of_norm = both_bounds(1.0, shared=True, sharpened=True)
    assert along == 0
    assert of_norm > 0


@pytest.mark.parametrize("shared", [False, True])
def test_the_theorem_as_printed_has_counterexamples(shared: bool) -> None:
    """Nearly flat losses: with curvatures of about 1, the term 2 C D^2 is so large that it hides them."""
    along, of_norm = both_bounds(0.01, shared=shared)
    assert along == 0
    assert of_norm > 0


def test_gradients_may_differ_at_a_right_angle_to_the_path() -> None:
    """Flat losses that are equal all along the path, and whose gradients aren't."""
    pair = Quadratics(np.zeros((2, 2, 2)), np.array([[1.0, 0.0], [1.0, 5.0]]), np.zeros(2))
    path = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    losses = pair.losses(path)
    assert np.array_equal(losses[0], losses[1])
    assert np.linalg.norm(pair.gradients[0] - pair.gradients[1]) > norm_bound(0.0, 0.0, 2.0, 1.0)


def test_equal_trajectories_over_a_spanning_path_mean_equal_gradients() -> None:
    draw = np.random.default_rng(2)
    pair = random_quadratics(draw, 2, 3, shared=True)
    path = draw.standard_normal((5, 3))
    losses = pair.losses(path)
    rows = np.hstack([path, np.ones((5, 1))])
    difference = np.linalg.lstsq(rows, losses[0] - losses[1], rcond=None)[0]
    np.testing.assert_allclose(difference[:3], pair.gradients[0] - pair.gradients[1], atol=1e-9)


def test_a_subset_has_the_gradient_of_all_up_to_the_bound() -> None:
    draw = np.random.default_rng(3)
    for _ in range(1000):
        sizes = draw.integers(2, 9, draw.integers(1, 5))
        labels = np.repeat(np.arange(len(sizes)), sizes)
        gradients = draw.standard_normal((len(labels), 3)) * 0.3 + draw.standard_normal((len(sizes), 3))[labels]
        per = int(draw.integers(1, sizes.min() + 1))
        picks = np.concatenate(
            [draw.choice(np.flatnonzero(labels == k), per, replace=False) for k in range(len(sizes))]
        )
        error = np.linalg.norm(gradients.sum(0) - subset_gradient(gradients, picks, labels, per))
        assert error <= subset_gradient_bound(gradients, labels) + 1e-9
    with pytest.raises(ConfigError, match="empty"):
        subset_gradient_bound(gradients, labels * 2)


def test_training_on_the_subset_stays_within_the_bound() -> None:
    draw = np.random.default_rng(4)
    for _ in range(50):
        labels, p, c = np.repeat([0, 1], 6), 3, 12.0  # 12 losses |d - a_i|^2 / 2: their sum is 12-strongly convex
        places = draw.standard_normal((2, p))[labels] * 0.2 + 0.05 * draw.standard_normal((12, p))
        optimum, picks, per = places.mean(0), np.array([0, 1, 2, 6, 7, 8]), 3
        weight = 6 / per
        at, rate = draw.standard_normal(p), 0.01
        start = float(np.linalg.norm(at - optimum))
        longest, error = 0.0, 0.0
        for step in range(1, 60):
            gradients = at - places
            longest = max(longest, float(np.linalg.norm(gradients, axis=1).max()))
            error = max(error, float(np.linalg.norm(gradients.sum(0) - weight * gradients[picks].sum(0))))
            for pick in picks:
                at = at - rate * weight * (at - places[pick])
            bound = convergence_bound(
                step, start, rate=rate, convexity=c, error=error, picks=6, weight=weight, longest=longest
            )
            assert float(np.square(at - optimum).sum()) <= bound + 1e-9


def test_homogeneity_by_hand() -> None:
    labels, topics = np.array([0, 0, 0, 1, 1, 2, -1]), np.array([0, 0, 1, 1, 1, 0, 1])
    found = homogeneity(labels, topics)
    assert found.shares.tolist() == pytest.approx([2 / 3, 1.0])
    assert found.mean == pytest.approx(4 / 5)


def test_variance_within_clusters() -> None:
    values = np.array([[0.0], [0.0], [4.0], [4.0]], np.float32)
    assert within_share(values, np.array([0, 0, 1, 1])) == 0
    assert within_share(values, np.array([0, 1, 0, 1])) == 1
    assert within_share(values, np.array([0, 0, 2, 2])) == 0


def test_evenness() -> None:
    assert evenness(np.array([0, 1, 2, 3]), 4) == pytest.approx(1)
    assert evenness(np.array([2, 2]), 4) == 0
    assert evenness(np.array([0, 1]), 4) == pytest.approx(0.5)


@pytest.mark.parametrize(("target", "share"), [(410e6, 0.40), (2.7e9, 0.06), (7e9, 0.023)])
def test_the_cost_model(target: float, share: float) -> None:
    """A18: 18 for a training, 24 for twelve points."""
    cost = selection_cost(70e6, target)
    assert cost.training / 70e6 == 18
    assert cost.recording / 70e6 == 24
    assert cost.share == pytest.approx(share, rel=0.05)


def test_rank_correlation_is_spearmans() -> None:
    from scipy.stats import spearmanr

    one, other = np.random.default_rng(0).standard_normal((2, 50))
    assert rank_correlation(one, one + other) == pytest.approx(spearmanr(one, one + other).statistic)
