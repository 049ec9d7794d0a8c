"""A6: k-means of many points."""

import itertools

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from holdfast.errors import ConfigError, DataError
from holdfast.primitives.lloyd import lloyd, nearest_centre
from holdfast.primitives.lloyd_options import Engine

ENGINES = ("faiss", "scikit-learn")


def planted(n: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Eight shapes of trajectories of 12 points, unequally frequent."""
    draw, t = np.random.default_rng(seed), np.linspace(0, 1, 12)
    shapes = np.stack([
        3 * np.exp(-5 * t), 3 - 2 * t, np.full(12, 3.0), np.full(12, 0.2), 3 / (1 + np.exp(12 * (t - 0.5))),
        1 + np.exp(-3 * t), 2 - t**2, 0.5 + 2.5 * (t < 0.25),
    ])  # fmt: skip
    labels = draw.choice(8, n, p=[0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05])
    return (shapes[labels] + noise * draw.standard_normal((n, 12))).astype(np.float32), labels


def inertia(points: np.ndarray, labels: np.ndarray, centres: np.ndarray) -> float:
    return float(np.square(points - centres[labels]).sum())


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "faiss":
        pytest.importorskip("faiss")
    return request.param


def test_planted_trajectories_are_found(engine: Engine) -> None:
    points, labels = planted(3000, 0.05)
    clustering = lloyd(points, 8, engine=engine, start="k-means++")
    assert adjusted_rand_score(labels, clustering.labels) > 0.95


def test_as_tight_as_scikit_learn(engine: Engine) -> None:
    points, _ = planted(5000, 0.5)
    best = min(
        inertia(points, found.labels, found.centres)
        for found in (lloyd(points, 20, engine=engine, seed=seed, most_per_centre=None) for seed in range(5))
    )
    reference = KMeans(20, n_init=5, random_state=0).fit(points).inertia_
    assert best < 1.02 * reference


def test_engines_agree_from_the_same_start() -> None:
    pytest.importorskip("faiss")
    points, _ = planted(5000, 0.3)
    one, other = (lloyd(points, 10, engine=engine) for engine in ENGINES)  # type: ignore[arg-type]
    assert adjusted_rand_score(one.labels, other.labels) > 0.99
    np.testing.assert_allclose(one.centres, other.centres, atol=0.05)


def test_everyone_belongs_to_the_nearest(engine: Engine) -> None:
    points, _ = planted(400, 0.5)
    clustering = lloyd(points, 9, engine=engine, most_per_centre=10)
    distances = np.square(points[:, None].astype(np.float64) - clustering.centres).sum(2)
    assert np.array_equal(clustering.labels, distances.argmin(1))
    assert np.array_equal(clustering.labels, nearest_centre(points, clustering.centres))


def test_the_order_of_coordinates_and_a_constant_one_change_nothing(engine: Engine) -> None:
    points, _ = planted(1000, 0.2)
    clustering = lloyd(points, 8, engine=engine)
    turned = lloyd(points[:, ::-1], 8, engine=engine)
    wider = lloyd(np.hstack([points, np.full((1000, 1), 2.0, np.float32)]), 8, engine=engine)
    assert adjusted_rand_score(clustering.labels, turned.labels) > 0.999
    assert adjusted_rand_score(clustering.labels, wider.labels) > 0.999


def test_more_iterations_are_never_worse() -> None:
    points, _ = planted(2000, 0.5)
    fits = [lloyd(points, 12, iterations=count, engine="scikit-learn") for count in (1, 2, 4, 8, 16)]
    costs = [inertia(points, fit.labels, fit.centres) for fit in fits]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in itertools.pairwise(costs))


def test_fewer_different_points_than_centres(engine: Engine) -> None:
    points = np.repeat(np.eye(3, 4, dtype=np.float32), 5, axis=0)
    clustering = lloyd(points, 7, engine=engine)
    assert len(np.unique(clustering.labels)) <= 3


def test_seeds(engine: Engine) -> None:
    points, _ = planted(1000, 0.5)
    one, same, other = (lloyd(points, 8, seed=seed, engine=engine).labels for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_what_makes_no_sense() -> None:
    points = np.zeros((3, 2), np.float32)
    with pytest.raises(ConfigError, match="k is 4 and there are 3 points"):
        lloyd(points, 4)
    with pytest.raises(DataError, match="not finite"):
        lloyd(np.full((3, 2), np.nan), 2)
    with pytest.raises(DataError, match="shape"):
        lloyd(np.zeros(3), 2)
