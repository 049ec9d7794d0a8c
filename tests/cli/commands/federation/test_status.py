"""What `holdfast federation status` shows: a line on the rounds, a row per node, the last faults."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

pytest.importorskip("flwr")

from holdfast.cli.commands.federation.status import shown
from holdfast.integrations.flower.operation.status import FederationStatus, NodeStatus


def test_rounds_nodes_and_faults_are_shown_and_move_no_cursor():
    faults = (
        {"round": 1, "clients": [], "kind": "refused", "reason": "west: \x1b[2J\nround 9: all is well"},
        {"round": 2, "clients": [5, 6, 7], "kind": "away", "reason": "no node has the client"},
    )
    nodes = (NodeStatus("north", 2, True, 2.0, 0, 0), NodeStatus("west", 3, False, 0.0, 6, 1))
    console = Console(file=io.StringIO(), width=120)
    console.print(shown(FederationStatus("running", 2, 6, 8.0, nodes, faults)))
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("running: 2 of 6 rounds")
    assert [line.split() for line in lines if "west  " in line] == [["west", "3", "no", "0.0", "6", "1"]]
    assert lines[-2] == r"round 1: refused, west: \x1b[2J round 9: all is well"
    assert lines[-1] == "round 2, clients 5-7: away, no node has the client"
