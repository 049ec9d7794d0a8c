"""Who took part, as a number: the share of the rounds that drew a client in which it counted."""

import pytest
import torch

from holdfast.federated.engine.selection import select
from holdfast.federated.settings import Rounds
from holdfast.integrations.flower.server.participation import participation, rounds_drawn


def test_rounds_that_drew_a_client_are_those_that_the_server_selected():
    settings, sizes, nobody = Rounds(cohort=2, seed=3), torch.tensor([5, 9, 1, 7]), torch.zeros(4, dtype=torch.bool)
    counted = [sum(client in select(settings, number, sizes, nobody) for number in range(30)) for client in range(4)]
    assert rounds_drawn(settings, 30, sizes, nobody).tolist() == counted
    assert sum(counted) == 60


def test_slow_clients_are_named_with_how_the_shared_model_does_on_them():
    faults = [
        {"kind": "silent", "clients": [1]},
        {"kind": "busy", "clients": [1, 2]},
        {"kind": "refused", "clients": [3]},
        {"kind": "returned", "clients": [0]},
    ]
    drawn, counted = torch.tensor([4, 4, 4, 4, 0]), torch.tensor([4, 1, 2, 0, 0])
    accuracy, tested = torch.tensor([0.9, 0.5, 0.7, 0.1, 0.0]), torch.tensor([True, True, True, False, False])
    said = participation(drawn, counted, faults, accuracy, tested)
    assert said["mean"] == pytest.approx((1 + 0.25 + 0.5 + 0) / 4)
    assert (said["lowest"], said["below_half"], said["slow"]) == (0.0, 2, 1)
    assert [one["client"] for one in said["left_out"]] == [3, 1]
    assert said["left_out"][1] == {"client": 1, "drawn": 4, "counted": 1, "slow": 2}
    assert said["accuracy_below_half"] == pytest.approx(0.5)
    assert said["accuracy_others"] == pytest.approx(0.8)
    assert "2 of 4 clients counted in less than half, 1 of them for slowness" in said["sentence"]


def test_where_nobody_was_asked_nothing_is_claimed():
    none = torch.zeros(2, dtype=torch.int64)
    assert participation(none, none, [], torch.zeros(2), none.bool())["mean"] is None
