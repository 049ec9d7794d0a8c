"""Krum against brute force, where float32 is not enough."""

import pytest
import torch
from torch import Tensor

from holdfast.federated.aggregation import Krum, MultiKrum, krum_select, mean
from tests.federated.aggregation.rounds import random_round


def brute_force(updates: Tensor, f: int) -> list[int]:
    """Positions by score, with every pair's difference formed in float64."""
    values = updates.double()
    m = len(values)
    scores = []
    for i in range(m):
        others = sorted(float((values[i] - values[j]).square().sum()) for j in range(m) if j != i)
        scores.append(sum(others[: max(m - f - 2, 1)]))
    return sorted(range(m), key=scores.__getitem__)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("f", [0, 2, 5])
def test_krum_is_brute_force(dtype: torch.dtype, f: int) -> None:
    for seed in range(10):
        updates = random_round(seed, 12, 40, dtype)
        order = brute_force(updates, f)
        assert torch.equal(Krum()(updates, f=f), updates[order[0]])
        expected = updates[torch.tensor(sorted(order[: 12 - f]))].double().mean(0).to(dtype)
        torch.testing.assert_close(MultiKrum()(updates, f=f), expected)


def test_multi_krum_that_keeps_one_is_krum() -> None:
    for seed in range(10):
        updates = random_round(seed, 9, 25, torch.float32)
        assert torch.equal(MultiKrum(keep=1)(updates, f=2), Krum()(updates, f=2))


def test_krum_returns_one_of_its_inputs_even_of_one_or_two() -> None:
    for m in (1, 2, 3):
        updates = random_round(0, m, 5)
        assert any(torch.equal(Krum()(updates, f=1), row) for row in updates)


def test_a_sign_flipper_among_tiny_updates_is_found_though_the_model_is_large() -> None:
    """Distances between models of norm 21 in float32 keep such an attacker in most trials (peers, finding 8)."""
    generator = torch.Generator().manual_seed(0)
    fooled = 0
    for _ in range(8):
        weights = torch.randn(20_522, generator=generator)
        weights *= 21 / weights.norm()
        drift, noise = torch.randn(20_522, generator=generator), torch.randn(10, 20_522, generator=generator)
        updates = drift + noise
        updates *= 0.003 / updates.norm(dim=1, keepdim=True)
        updates[8:] *= -1
        assert set(krum_select(updates, 6, 8).tolist()) == set(range(8))
        models = weights + updates
        squares = models.square().sum(1)
        rough = squares[:, None] + squares - 2 * models @ models.T
        chosen = rough.sort(1).values[:, 1:7].sum(1).argsort()[:8]
        fooled += bool((chosen >= 8).any())
    assert fooled > 0


@pytest.mark.parametrize("drift", [0.0, 1.0])
@pytest.mark.parametrize("outlier", [1.0, 1e6])
def test_float32_gives_way_to_float64_where_it_cannot_decide(drift: float, outlier: float) -> None:
    for seed in range(6):
        updates = drift + 1e-3 * random_round(seed, 15, 300)
        updates[0] *= outlier
        single = updates.float()
        expected = brute_force(single, 3)
        assert krum_select(single, 10, 1).tolist() == expected[:1]
        assert sorted(krum_select(single, 10, 12).tolist()) == sorted(expected[:12])


def test_equal_scores_are_settled_by_the_order_of_clients() -> None:
    updates = torch.eye(6)
    assert torch.equal(Krum()(updates, f=1), updates[0])
    torch.testing.assert_close(MultiKrum()(updates, f=2), mean(updates[:4]) * 1.0)


@pytest.mark.filterwarnings("error")
def test_updates_that_overflow_are_no_warning_on_somebodys_screen() -> None:
    updates = torch.randn(11, 5, generator=torch.Generator().manual_seed(0))
    updates[3] = 1e20
    assert bool((Krum()(updates, f=1).abs() < 10).all())
