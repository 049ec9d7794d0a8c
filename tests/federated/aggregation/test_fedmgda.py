"""The quadratic programme of FedMGDA+ (spec, check A8) against brute force and a general solver."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import FedMgda, min_norm_step, shortest_mixture
from tests.federated.aggregation.rounds import random_round


def directions(seed: int, m: int, parameters: int) -> Tensor:
    updates = random_round(seed, m, parameters) - 0.7 * random_round(seed, 1, parameters)
    return updates / updates.norm(dim=1, keepdim=True)


def shortest_by_brute_force(gram: np.ndarray, epsilon: float) -> float:
    """The smallest length over every way to put each weight at its lower bound, at its upper bound, or between."""
    m = len(gram)
    lower, upper = max(1 / m - epsilon, 0), min(1 / m + epsilon, 1)
    best = np.inf
    for states in itertools.product((lower, upper, None), repeat=m):
        free = [i for i, state in enumerate(states) if state is None]
        p = np.array([0.0 if state is None else state for state in states])
        if free:
            n = len(free)
            system = np.block([[gram[np.ix_(free, free)], np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
            right = np.concatenate([-(gram[free] @ p), [1 - p.sum()]])
            p[free] = np.linalg.lstsq(system, right, rcond=None)[0][:n]
        if abs(p.sum() - 1) < 1e-9 and p.min() > lower - 1e-9 and p.max() < upper + 1e-9:
            best = min(best, p @ gram @ p)
    return float(np.sqrt(max(best, 0)))


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 1.0])
def test_the_mixture_is_as_short_as_brute_force_finds(epsilon: float) -> None:
    for seed in range(4):
        g = directions(seed, 5, 3 + 3 * (seed % 2))
        p = shortest_mixture(g @ g.T, epsilon)
        assert float((p @ g).norm()) == pytest.approx(shortest_by_brute_force((g @ g.T).numpy(), epsilon), abs=1e-8)


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 1.0])
def test_the_mixture_is_that_of_a_general_solver(epsilon: float) -> None:
    m = 12
    g = directions(7, m, 30)
    gram = (g @ g.T).numpy()
    bounds = [(max(1 / m - epsilon, 0), min(1 / m + epsilon, 1))] * m
    solved = minimize(
        lambda p: 0.5 * p @ gram @ p,
        np.full(m, 1 / m),
        jac=lambda p: gram @ p,
        bounds=bounds,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(m)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    ).x
    torch.testing.assert_close(shortest_mixture(g @ g.T, epsilon), torch.from_numpy(solved), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("m", "parameters"), [(1, 3), (2, 4), (40, 10), (60, 200)])
@pytest.mark.parametrize("epsilon", [0.003, 0.1, 1.0])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_weights_are_feasible_and_no_exchange_between_two_of_them_helps(
    m: int, parameters: int, epsilon: float, repeated: bool
) -> None:
    g = directions(3, m, parameters)
    if repeated:
        g = torch.cat([g, g[: m // 2], g[:1].repeat(3, 1)])
    p = shortest_mixture(g @ g.T, epsilon)
    lower, upper = max(1 / len(g) - epsilon, 0), min(1 / len(g) + epsilon, 1)
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    assert float(p.min()) >= lower
    assert float(p.max()) <= upper
    gradient = g @ (p @ g)
    falls, rises = gradient[p > lower + 1e-9], gradient[p < upper - 1e-9]
    if len(falls) and len(rises):
        assert float(falls.max() - rises.min()) < 1e-10


def test_a_wider_box_never_makes_the_step_longer_and_without_one_no_client_is_worse_off() -> None:
    updates = random_round(5, 20, 15)
    lengths = [float(min_norm_step(updates, epsilon).norm()) for epsilon in (0, 0.01, 0.03, 0.1, 0.3, 0.95, 2.0)]
    assert all(wider <= narrower + 1e-12 for narrower, wider in itertools.pairwise(lengths))
    assert lengths[-1] < lengths[0]
    step = min_norm_step(updates, 1 - 1 / 20)
    g = updates / updates.norm(dim=1, keepdim=True)
    assert bool((g @ step >= step @ step - 1e-10).all())


def test_updates_that_are_zero_are_left_out() -> None:
    updates = random_round(6, 4, 8)
    with_zeros = torch.cat([torch.zeros(2, 8, dtype=torch.float64), updates])
    torch.testing.assert_close(min_norm_step(with_zeros, 0.1), min_norm_step(updates, 0.1))
    assert torch.equal(min_norm_step(torch.zeros(3, 8), 0.1), torch.zeros(8))


def test_the_length_of_an_update_has_no_influence_and_the_server_chooses_the_step() -> None:
    updates = random_round(6, 5, 8)
    boosted = updates * torch.tensor([[1.0], [1e4], [1.0], [3.0], [0.1]], dtype=torch.float64)
    torch.testing.assert_close(FedMgda(0.1, server_rate=2.0)(boosted), 2 * FedMgda(0.1)(updates))


def test_a_negative_epsilon_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon is -1"):
        FedMgda(-1.0)
