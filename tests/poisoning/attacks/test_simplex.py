import pytest
import torch

from holdfast.poisoning.attacks.simplex import nearest_combination


@pytest.mark.parametrize("points", [2, 5, 30])
def test_no_other_combination_is_nearer(points):
    """First-order conditions of a convex problem: no vertex lies in a direction of descent."""
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        at = torch.randn(points, 8, dtype=torch.float64, generator=generator)
        goal = torch.randn(8, dtype=torch.float64, generator=generator)
        found = nearest_combination(at, goal, steps=5000, tolerance=1e-12)
        assert found.min() >= 0 and found.sum() == pytest.approx(1)
        slope = at @ (found @ at - goal)
        assert slope.min() >= found @ slope - 1e-5


def test_two_points_have_a_closed_form_and_a_goal_inside_is_reached():
    at, goal = torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([1.0, 3.0])
    torch.testing.assert_close(nearest_combination(at, goal, steps=500), torch.tensor([0.75, 0.25]), atol=1e-4, rtol=0)
    inside = torch.tensor([0.2, 0.3, 0.5]) @ (corners := torch.randn(3, 5))
    reached = nearest_combination(corners, inside, steps=2000, tolerance=1e-9)
    torch.testing.assert_close(reached @ corners, inside, atol=1e-3, rtol=0)


def test_a_start_at_the_solution_stays_there_and_worse_never_comes_out():
    at, goal = torch.randn(6, 4), torch.randn(4)
    found = nearest_combination(at, goal, steps=2000, tolerance=1e-9)
    torch.testing.assert_close(nearest_combination(at, goal, found), found, atol=1e-3, rtol=0)
    start = torch.full((6,), 1 / 6)
    for steps in (1, 3, 10):
        moved = nearest_combination(at, goal, steps=steps)
        assert (moved @ at - goal).norm() <= (start @ at - goal).norm() + 1e-6
