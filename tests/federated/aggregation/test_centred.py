import pytest
import torch

from holdfast.federated.aggregation import CentredClipping, Clipping, RoundFacts, centred_clipping
from tests.federated.aggregation.rounds import random_round
from tests.federated.byzantine import published


@pytest.mark.parametrize(("radius", "iterations"), [(0.5, 1), (3.0, 4), (1e-3, 2), (100.0, 1)])
def test_with_a_radius_it_is_that_of_byzfl_round_after_round(radius, iterations):
    theirs = published().CenteredClipping(L=iterations, tau=radius)
    rule = CentredClipping(radius, iterations)
    memory = rule.begin(9, 20)
    for number in range(4):
        updates = random_round(number, 9, 20)
        found, memory = rule.step(updates, RoundFacts(), memory)
        torch.testing.assert_close(found, torch.as_tensor(theirs(updates.numpy())), rtol=0, atol=1e-12)


def test_from_zero_it_is_clipping_to_the_median_norm():
    updates = random_round(0, 9, 20)
    torch.testing.assert_close(CentredClipping()(updates), Clipping()(updates), rtol=0, atol=1e-14)


def test_updates_at_the_centre_pull_nowhere_and_many_walks_end_among_a_majority():
    same = torch.ones(7, 3)
    assert torch.equal(centred_clipping(same, torch.ones(3)), torch.ones(3))
    attacked = torch.cat([torch.full((3, 3), -1e30), same])
    torch.testing.assert_close(centred_clipping(attacked, torch.zeros(3), iterations=60), torch.ones(3))


def test_an_attacker_is_worth_its_share_of_a_radius():
    """Changing f of m updates moves one walk by 2 f / m radii at most."""
    updates = random_round(3, 10, 20)
    changed = updates.clone()
    changed[:2] = 1e200
    moved = centred_clipping(updates, updates.mean(0), 0.7) - centred_clipping(changed, updates.mean(0), 0.7)
    assert float(moved.norm()) <= 2 * 2 / 10 * 0.7 + 1e-12
