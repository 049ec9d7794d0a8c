"""Samples of one distribution can't be told apart, and others can, by as much as theory says."""

import math

import pytest
import torch

from holdfast.primitives.two_samples import told_apart


def _normal(n: int, seed: int, shift: float = 0.0, d: int = 20) -> torch.Tensor:
    sample = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    sample[:, 0] += shift
    return sample


def test_two_samples_of_one_distribution_are_ranked_by_guessing():
    areas = [told_apart(_normal(60, seed), _normal(500, 100 + seed), seed=seed).area for seed in range(5)]
    assert sum(areas) / 5 == pytest.approx(0.5, abs=0.05)


def test_the_area_of_shifted_normals_is_that_of_their_best_ranking():
    """Normals of one variance at distance s are ranked right with probability Phi(s / sqrt 2)."""
    best = 0.5 * (1 + math.erf(2 / 2))
    told = told_apart(_normal(1500, 0), _normal(1500, 1, shift=2.0))
    assert told.area == pytest.approx(best, abs=0.015)
    assert 0 < told.standard_error < 0.01


def test_a_few_dozen_examples_of_a_thousand_numbers_are_enough():
    told = told_apart(_normal(40, 0, d=1000) + 1, _normal(400, 1, d=1000))
    assert told.area > 0.95


def test_fewer_than_ten_say_nothing():
    assert told_apart(_normal(9, 0), _normal(100, 1)) is None
