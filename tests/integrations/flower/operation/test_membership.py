"""The roster follows the operator: slips are mended, and ids don't move under a run that goes by them."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.integrations.flower.operation.credentials import make_node_key
from holdfast.integrations.flower.operation.membership import admit, dismiss
from holdfast.training import Run
from tests.integrations.flower.operation.server import small_federation


@pytest.fixture
def federation(tmp_path):
    federation = small_federation(tmp_path / "ours")
    for name in ("north", "south", "other"):
        make_node_key(tmp_path / name)
    admit(federation, "north", tmp_path / "north.pub", 2, 50)
    admit(federation, "south", tmp_path / "south.pub")
    return federation


def clients(federation):
    return {node.name: node.clients for node in federation.roster().nodes}


def test_a_wrong_number_of_clients_is_mended_and_all_ids_are_dealt_out_anew(federation, tmp_path):
    node = admit(federation, "north", tmp_path / "north.pub", 3, replace=True)
    assert (node.clients, node.most_examples) == ((0, 1, 2), 50)
    assert clients(federation) == {"north": (0, 1, 2), "south": (3,)}
    assert admit(federation, "north", tmp_path / "north.pub", 1, 70, replace=True).most_examples == 70
    assert clients(federation) == {"north": (0,), "south": (1,)}


def test_not_while_a_run_goes_by_the_ids(federation, tmp_path):
    Run.create(federation.run, {"rounds": 3}, kind="federation")
    with pytest.raises(ConfigError, match="'north' has 2 clients in the run"):
        admit(federation, "north", tmp_path / "north.pub", 3, replace=True)
    assert admit(federation, "north", tmp_path / "other.pub", 2, replace=True).clients == (0, 1)


def test_a_node_on_the_roster_is_changed_by_name_only_if_that_is_asked_for(federation, tmp_path):
    with pytest.raises(ConfigError, match="on the roster already; add --replace"):
        admit(federation, "north", tmp_path / "other.pub")
    with pytest.raises(ConfigError, match="there is no node 'west'"):
        admit(federation, "west", tmp_path / "other.pub", replace=True)


def test_a_dismissed_node_keeps_its_ids_and_nobody_waits_for_it(federation, tmp_path):
    dismiss(federation, "north")
    roster = federation.roster()
    assert clients(federation) == {"north": (0, 1), "south": (2,)}
    assert [node.name for node in roster.present] == ["south"]
    assert not roster.has_tokens, "a dismissed node can't be proved by a secret"
    admit(federation, "north", tmp_path / "other.pub", replace=True)
    assert [node.name for node in federation.roster().present] == ["north", "south"]
    assert clients(federation)["north"] == (0, 1)
