import pytest
import torch

from holdfast.primitives.simplex import project_to_simplex


@pytest.mark.parametrize(
    ("point", "nearest"),
    [((0.5, 0.5, 0.9), (0.2, 0.2, 0.6)), ((0.1, -0.5, 1.5), (0, 0, 1)), ((0.6, 0.5, 0.2), (0.5, 0.4, 0.1))],
)
def test_the_projection_is_that_of_examples_by_hand(point: object, nearest: object) -> None:
    projected = project_to_simplex(torch.tensor(point, dtype=torch.float64))
    torch.testing.assert_close(projected, torch.tensor(nearest, dtype=torch.float64), rtol=0, atol=1e-8)


def test_no_point_of_the_simplex_is_nearer_than_the_projection() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        point = 2 * torch.randn(6, generator=generator, dtype=torch.float64)
        nearest = project_to_simplex(point)
        assert float(nearest.sum()) == pytest.approx(1)
        assert float(nearest.min()) >= 0
        corners = torch.eye(6, dtype=torch.float64)
        assert float(((corners - nearest) @ (point - nearest)).max()) <= 1e-12


def test_projection_to_the_simplex_meets_its_conditions():
    """The nearest point p of v: non-negative, sums to one, and v - p is the same number wherever p is positive."""
    for seed in range(20):
        values = 2 * torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        projected = project_to_simplex(values)
        assert projected.min() >= 0 and projected.sum() == pytest.approx(1)
        shift = values - projected
        assert shift[projected > 0].max() - shift[projected > 0].min() < 1e-12
        assert (shift[projected == 0] <= shift[projected > 0].max() + 1e-12).all()
    inside = torch.tensor([0.2, 0.5, 0.3])
    torch.testing.assert_close(project_to_simplex(inside), inside)
