import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from holdfast.errors import ConfigError, DataError
from holdfast.primitives.matching_pursuit import positive_matching_pursuit


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_planted_nonnegative_combination_is_found():
    for seed in range(10):
        vectors = drawn(200, 60, seed=seed)
        planted = torch.randperm(200, generator=torch.Generator().manual_seed(seed))[:5]
        weights = 1 + drawn(5, seed=seed + 1).abs()
        matched = positive_matching_pursuit(vectors, weights @ vectors[planted], 5)
        assert set(matched.chosen.tolist()) == set(planted.tolist())
        by_vector = dict(zip(matched.chosen.tolist(), matched.weights.tolist(), strict=True))
        assert [by_vector[p] for p in planted.tolist()] == pytest.approx(weights.tolist())


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_the_objective_never_increases_and_weights_are_positive(ridge):
    vectors, target = drawn(300, 40), drawn(40, seed=1) * 5
    matched = positive_matching_pursuit(vectors, target, 60, ridge=ridge)
    assert bool((matched.objectives.diff() <= 1e-9).all())
    assert bool((matched.weights > 0).all())
    assert len(matched.chosen) == len(set(matched.chosen.tolist())) <= 60
    residual = target - matched.weights @ vectors[matched.chosen]
    objective = residual @ residual + ridge * matched.weights @ matched.weights
    assert float(matched.objectives[-1]) == pytest.approx(float(objective))


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_without_a_limit_it_is_nonnegative_least_squares(ridge):
    for seed in range(5):
        vectors, target = drawn(25, 30, seed=seed), drawn(30, seed=seed + 50)
        matched = positive_matching_pursuit(vectors, target, 25, ridge=ridge)
        system = np.vstack([vectors.T.numpy(), np.sqrt(ridge) * np.eye(25)])
        exact, _ = nnls(system, np.concatenate([target.numpy(), np.zeros(25)]))
        mine = torch.zeros(25, dtype=torch.float64)
        mine[matched.chosen] = matched.weights
        assert mine.tolist() == pytest.approx(exact.tolist(), abs=1e-8)


def test_more_vectors_than_dimensions_are_solved_in_the_smaller_space():
    vectors, target = drawn(500, 8).abs(), 40 * torch.ones(8, dtype=torch.float64)
    few, many = (positive_matching_pursuit(vectors, target, k, ridge=0.5) for k in (6, 60))
    assert len(many.chosen) > 8
    assert float(many.objectives[-1]) < float(few.objectives[-1])


def test_it_stops_where_nothing_points_along_the_residual_or_the_residual_is_small():
    assert len(positive_matching_pursuit(-torch.eye(3), torch.ones(3), 3).chosen) == 0
    target = torch.tensor([4.0, 1.0, 0.1])
    assert len(positive_matching_pursuit(torch.eye(3), target, 3, tolerance=0.05).chosen) == 2


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="give at least 1"):
        positive_matching_pursuit(torch.ones(3, 2), torch.ones(2), 0)
    with pytest.raises(DataError, match="give \\(n, d\\) and \\(d,\\)"):
        positive_matching_pursuit(torch.ones(3, 2), torch.ones(3), 1)
    with pytest.raises(DataError, match="not finite"):
        positive_matching_pursuit(torch.full((3, 2), torch.inf), torch.ones(2), 1)
