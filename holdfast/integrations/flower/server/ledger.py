"""What went wrong, and for whom it was once too often: a line in the log, and an entry in the run's record.

Whatever a node has said is escaped and short before it comes here. A node that is refused all day fills neither the log
of a server nor its record: after ten thousand entries there are lines only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.integrations.flower.roster import spelled
from holdfast.integrations.flower.server.attendance import Attendance
from holdfast.integrations.flower.server.members import Members
from holdfast.integrations.flower.server.questions import Order, Round
from holdfast.integrations.flower.settings import Fault

_log = logging.getLogger("holdfast.federated.flower")
_MOST_FAULTS, _LETTERS = 10_000, 200


@dataclass
class Ledger:
    """Faults of a federation.

    Attributes:
        members: whose clients are whose.
        attendance: who is there.
        faults: oldest first, until the run's record takes them.
        number: of the round, from 0.
    """

    members: Members
    attendance: Attendance
    faults: list[Fault] = field(default_factory=list)
    number: int = 0
    _entries: int = 0

    def fault(self, clients: Sequence[int], kind: Any, reason: str, *, node: str = "") -> None:
        """Write something down, of clients or of a node on the roster as a whole."""
        who = f"clients {spelled(clients)[:_LETTERS]}" if clients else "a node"
        _log.warning("round %d: %s %s: %s", self.number + 1, who, kind, reason)
        self._entries += 1
        if self._entries <= _MOST_FAULTS:
            self.faults.append(Fault(self.number, tuple(clients), kind, reason, node))

    def missing(self, current: Round, orders: Iterable[Order], timeout: float) -> None:
        """Write down who has not answered a question, and why."""
        under_way = {client: order.question for order in orders for client in order.clients}
        reasons: dict[tuple[str, str], list[int]] = {}
        for client in sorted(current.wanted - current.got.keys()):
            question = under_way.get(client)
            why = ("silent", f"no answer within {timeout:g} seconds")
            if client in current.failed:
                why = current.failed[client]
            elif question not in (None, current.question):
                why = ("busy", f"still at work on round {question.number + 1}")
            elif question is None and client not in self.attendance.holder:
                why = ("away", "no node has the client")
            reasons.setdefault(why, []).append(client)
        for (kind, reason), clients in reasons.items():
            self.fault(clients, kind, reason)

    def strike_node(self, node: int) -> None:
        """Count a reply of a node that was refused as a whole."""
        hosted = [client for client, holder in self.attendance.holder.items() if holder == node]
        self._strike(self.attendance.name(node), hosted)

    def strike_client(self, client: int) -> None:
        """Count an answer of a client that was refused."""
        self._strike(client_name(client), [client])

    def _strike(self, who: str, clients: Sequence[int]) -> None:
        """Who has had too many refused is left out from now on."""
        if self.members.strike(who):
            self.attendance.unseat(clients)
            why = f"{who} is left out from now on: {self.members.most_faults} of its replies were refused"
            self.fault(sorted(clients), "expelled", why)

    def expel(self, client: int, reason: str) -> None:
        """Leave a client out from now on."""
        self.members.expel(client_name(client))
        self.attendance.unseat([client])
        self.fault([client], "refused", reason)


def client_name(client: int) -> str:
    """How members call a client."""
    return f"client {client}"
