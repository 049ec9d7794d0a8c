"""What counts as refused of a node: replies of its clients, and the node as a whole when it never came to have any."""

from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from holdfast.integrations.flower.operation.status import _node
from holdfast.integrations.flower.roster import RosterNode
from holdfast.integrations.flower.server.attendance import Attendance, Census, Sighting
from holdfast.integrations.flower.server.intake import Arrival
from holdfast.integrations.flower.server.ledger import Ledger
from holdfast.integrations.flower.server.members import Members
from holdfast.integrations.flower.server.roll_call import RollCall

NORTH, WEST = RosterNode("north", (0, 1), 500, "key of north"), RosterNode("west", (2,), 500, "key of west")


@pytest.mark.parametrize(
    "arrival",
    [
        Arrival("census", failure="the invitation is of another model"),
        Arrival("census", refusal="the reply is too large"),
    ],
)
def test_a_node_that_was_asked_whom_it_hosts_and_refused_or_was_refused_is_counted(arrival):
    roster = SimpleNamespace(of_key=lambda key: WEST if key == b"west" else None)
    members, attendance = Members(), Attendance(None, {7: Census(Sighting(7, key=b"west"))})
    members.roster = roster
    ledger = Ledger(members, attendance)
    RollCall("ours", members, attendance, ledger).hear(7, arrival)

    faults = tuple(fault.as_dict() for fault in ledger.faults)
    assert _node(WEST, None, [], faults).wrong == 1
    assert _node(NORTH, None, [], faults).wrong == 0


def test_replies_are_counted_by_client_and_records_of_older_versions_name_no_node():
    faults = (
        {"round": 1, "clients": [0, 1], "kind": "refused", "reason": "not finite"},
        {"round": 1, "clients": [], "kind": "refused", "reason": "west (node 7) was asked whom it hosts: no"},
    )
    assert (_node(NORTH, None, [], faults).wrong, _node(WEST, None, [], faults).wrong) == (2, 0)
