"""Nearest neighbours against the table of all distances."""

import pytest
import torch

from holdfast.errors import DataError
from holdfast.primitives import neighbours
from holdfast.primitives.neighbours import nearest_neighbours


@pytest.mark.parametrize("held", [1, 1000, 2**23])
def test_they_are_those_of_the_table_of_all_distances_whatever_is_held_at_once(monkeypatch, held):
    monkeypatch.setattr(neighbours, "_HELD", held)
    points = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)) + 100
    table = (points[:, None].double() - points[None].double()).square().sum(2)
    table.fill_diagonal_(torch.inf)
    found = nearest_neighbours(points, 4)
    expected = table.sort(dim=1).values[:, :4]
    torch.testing.assert_close(found.distances.double(), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(table.gather(1, found.positions), expected, rtol=1e-3, atol=1e-3)


def test_a_copy_is_at_distance_zero_and_nobody_is_their_own_neighbour():
    points = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) * 1000
    points[7] = points[3]
    found = nearest_neighbours(points, 10)
    assert found.distances[7, 0] == found.distances[3, 0] == 0
    assert found.positions[7, 0] == 3
    assert not bool((found.positions == torch.arange(50)[:, None]).any())


def test_there_are_at_most_as_many_as_others():
    assert nearest_neighbours(torch.zeros(3, 2), 10).positions.shape == (3, 2)
    with pytest.raises(DataError, match="at least 2"):
        nearest_neighbours(torch.zeros(1, 2), 1)
