import pytest
import torch
from scipy.optimize import minimize

from holdfast.federated.aggregation import geometric_median
from tests.federated.aggregation.rounds import random_round


@pytest.mark.parametrize("m", [3, 8, 21])
def test_the_geometric_median_is_the_minimum_that_a_general_solver_finds(m: int) -> None:
    updates = random_round(m, m, 4)

    def total(point: object) -> float:
        return float((updates - torch.as_tensor(point)).norm(dim=1).sum())

    found = geometric_median(updates)
    solved = minimize(total, updates.mean(0).numpy(), method="BFGS", options={"gtol": 1e-9}).x
    torch.testing.assert_close(found, torch.from_numpy(solved), rtol=0, atol=1e-6)
    assert total(found) <= total(solved) + 1e-12


def test_at_the_median_the_directions_to_all_updates_cancel() -> None:
    updates = random_round(1, 12, 60)
    away = updates - geometric_median(updates)
    assert float((away / away.norm(dim=1, keepdim=True)).sum(0).norm()) < 1e-8


def test_of_three_points_with_a_wide_angle_it_is_the_one_in_the_middle() -> None:
    updates = torch.tensor([[0.0, 0.1], [-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(geometric_median(updates), updates[0], rtol=0, atol=1e-5)


def test_a_majority_at_one_point_decides() -> None:
    updates = torch.cat([torch.ones(4, 10), 1e6 * torch.randn(3, 10, generator=torch.Generator().manual_seed(0))])
    torch.testing.assert_close(geometric_median(updates), torch.ones(10), rtol=0, atol=1e-3)


def test_equal_updates_are_their_own_median() -> None:
    for value in (0.0, 0.3):
        assert torch.equal(geometric_median(torch.full((5, 7), value)), torch.full((5, 7), value)[0])


@pytest.mark.parametrize("boost", [1.0, 1e5])
def test_float32_updates_give_the_median_of_float64(boost: float) -> None:
    updates = random_round(2, 20, 5000, torch.float32)
    updates[:6] *= boost
    exact = geometric_median(updates.double())
    assert float((geometric_median(updates) - exact).norm() / exact.norm()) < 1e-6
