"""Asking nodes whom they host: who may be asked at all, what for, and what is made of the answers."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.objects import Limits
from holdfast.integrations.flower.messages.wire import Request, unreadable
from holdfast.integrations.flower.roster import RosterNode
from holdfast.integrations.flower.server.attendance import Attendance
from holdfast.integrations.flower.server.intake import Arrival
from holdfast.integrations.flower.server.ledger import Ledger, client_name
from holdfast.integrations.flower.server.members import Members

#: Most clients of a node where no roster says how many it has.
_UNLISTED = 10**5


@dataclass(frozen=True)
class RollCall:
    """Who hosts whom.

    Attributes:
        federation: its name.
        members: whose clients are whose.
        attendance: who is there.
        ledger: of those that were refused.
    """

    federation: str
    members: Members
    attendance: Attendance
    ledger: Ledger

    def heard(self) -> int:
        """How many nodes need not be waited for: known ones that were taken in or refused, and those that always fail.

        A stranger to the roster is none of them, whatever it does.
        """
        censuses = self.attendance.censuses.values()
        known = {census.name for census in censuses if census.name}
        broken = [census for census in censuses if census.is_hopeless and not census.name]
        if self.members.roster is not None:
            broken = [census for census in broken if not census.answered and self._may_speak(census.seen.key)]
        return len(known) + len(broken)

    def due(self, now: float) -> dict[int, Request]:
        """What nodes are to be asked now; those that can't be on the roster are turned away."""
        for node, census in self.attendance.censuses.items():
            if not census.attempts and not self._may_speak(census.seen.key):
                census.turned_away = True
                self.ledger.fault((), "refused", f"node {node} is not on the roster and is not asked")
        return {node: self._request(node) for node in self.attendance.due(now)}

    def limits(self, request: Request) -> Limits:
        """What the answer may be."""
        roster = self.members.roster
        most = len(request.clients) or (_UNLISTED if roster is None else roster.largest(1))
        return Limits.of(most)

    def hear(self, node: int, arrival: Arrival) -> bool:
        """Take in what came when a node was asked whom it hosts; return whether it has said so.

        One that failed is asked again: the SuperLink may have lost the answer. One that says what can't be is not.
        """
        census = self.attendance.censuses.get(node)
        if census is None:
            return False
        if arrival.content is None:
            census.failed += 1
            kind = "failed" if arrival.failure else "refused"
            why = f"the node failed: {arrival.failure}" if arrival.failure else arrival.refusal
            self._fault(node, kind, f"{self._called(node)} was asked whom it hosts: {why}")
            return False
        census.answered = True
        try:
            census.name, listed = self.members.identify(arrival.content, census.seen.key)
            if self.members.is_expelled(census.name):
                raise RejectedError("it was expelled before")
            clients, refused = self.members.admit(census.name, listed, arrival.content)
        except Exception as error:  # whatever a node says must not end the federation
            census.turned_away = True
            self._fault(node, "refused", f"{self._called(node)} was asked whom it hosts: {unreadable(error)}")
            return True
        for why in refused:
            self._fault(node, "refused", f"{census.name}: {why}")
        here = [client for client in clients if not self.members.is_expelled(client_name(client))]
        if back := self.attendance.seat(node, here):
            self.ledger.fault(tuple(back), "returned", "their node was lost and has been started again")
        return True

    def _fault(self, node: int, kind: str, reason: str) -> None:
        """Write down what a node as a whole did; it hosts no client yet that could stand for it."""
        listed = self._listed(node)
        self.ledger.fault((), kind, reason, node="" if listed is None else listed.name)

    def _called(self, node: int) -> str:
        """A node's name on the roster, where its key is there, beside the number that Flower gave it."""
        listed = self._listed(node)
        return f"node {node}" if listed is None else f"{listed.name} (node {node})"

    def _listed(self, node: int) -> RosterNode | None:
        roster = self.members.roster
        return None if roster is None else roster.of_key(self.attendance.censuses[node].seen.key)

    def _request(self, node: int) -> Request:
        roster, listed = self.members.roster, self._listed(node)
        total, ids = (0, ()) if roster is None or listed is None else (len(roster), listed.clients)
        return Request("census", self.federation, total=total, clients=ids)

    def _may_speak(self, key: bytes) -> bool:
        """Whether a node can be on the roster: by its key, or by a token that it has yet to send."""
        roster = self.members.roster
        return roster is None or roster.has_tokens or roster.of_key(key) is not None
