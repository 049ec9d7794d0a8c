"""Asking clients: requests go to the nodes that have them, replies are checked, and nobody can hold the rest up.

A round is open until everybody has answered or the timeout has passed, and a reply counts whenever it comes before
that. A node that is still at work is not given a second order: what it is doing would be done twice, and what it sends
thrown away. One that is silent though it is free, because its reply was lost, is (`silence`): it begins where it began
before, so nothing is trained twice, and nobody asks for the first reply any more, so nothing counts twice. What a
reply is worth is decided in `judging`, and what becomes of one whose round is over in `late`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from holdfast.errors import FederationError
from holdfast.integrations.flower.messages.objects import Limits
from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.roster import spelled
from holdfast.integrations.flower.server.attendance import Attendance
from holdfast.integrations.flower.server.intake import Arrival, Intake, intake_of
from holdfast.integrations.flower.server.judging import judge
from holdfast.integrations.flower.server.late import LateAnswers
from holdfast.integrations.flower.server.ledger import Ledger
from holdfast.integrations.flower.server.members import Members
from holdfast.integrations.flower.server.outbox import push_whole
from holdfast.integrations.flower.server.questions import Order, Question, Round
from holdfast.integrations.flower.server.roll_call import RollCall
from holdfast.integrations.flower.server.silence import Silence
from holdfast.integrations.flower.settings import Fault, FlowerSettings

_log = logging.getLogger("holdfast.federated.flower")
#: Seconds between questions for replies, at first and at most; between looks for nodes; that replies may be late.
_SHORTEST, _LONGEST, _LOOK, _MARGIN = 0.1, 1.0, 1.0, 60.0
#: Seconds that a message may take where the server waits for as long as it takes.
_PATIENCE = 7 * 24 * 3600.0


@dataclass
class Exchange:
    """Talks to the nodes of a run.

    Attributes:
        grid: of the run.
        settings: timeout, minimum, what to do when few answer and with those that are late.
        federation: its name, 32 hexadecimal digits.
        members: whose clients are whose.
    """

    grid: Any
    settings: FlowerSettings
    federation: str
    members: Members = field(default_factory=Members)
    _orders: dict[str, Order] = field(default_factory=dict)
    _over: set[str] = field(default_factory=set)
    _looked: float = 0.0
    _pause: float = _SHORTEST

    def __post_init__(self) -> None:
        self.attendance = Attendance(self.grid)
        self.ledger = Ledger(self.members, self.attendance)
        self._roll = RollCall(self.federation, self.members, self.attendance, self.ledger)
        self._silence = Silence(self.settings.timeout)
        self._late = LateAnswers(self.settings, self.ledger)
        self._intake: Intake = intake_of(self.grid)

    @property
    def faults(self) -> list[Fault]:
        """What went wrong, oldest first."""
        return self.ledger.faults

    @property
    def stale(self) -> dict[int, int]:
        """Of the last question, how many rounds late each answer was that came from an earlier round."""
        return self._late.stale

    # ---------------------------------------------------------------------------------------------- who is there

    def gather(self) -> None:
        """Wait until as many nodes as there should be have said whom they have, or failed too often.

        With a roster all of its nodes are waited for, and as many as there should be suffice in the end.

        Raises:
            FederationError: if they don't in time.
        """
        roster = self.members.roster
        best = self.settings.nodes if roster is None else max(len(roster.present), self.settings.nodes)
        patience = self.settings.join_timeout or self.settings.timeout
        until = time.monotonic() + patience
        while (heard := self._roll.heard()) < best and time.monotonic() <= until:
            self._look()
            self._collect(None)
            self._wait()
        why = f" (the last trouble: {self.faults[-1].reason})" if self.faults else ""
        if heard < self.settings.nodes:
            raise FederationError(
                f"{heard} of {self.settings.nodes} nodes reported their clients within {patience:g} seconds{why}; "
                "start the others, lower --nodes, or raise --join-timeout"
            )
        if roster is not None and not self.attendance.holder:
            raise FederationError(f"no node of the roster could join{why}; mend that and start again")

    def _look(self) -> None:
        """Ask nodes whom they host that have not said it yet, and silent ones for news; forget those that are gone."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        gone = self.attendance.look(now)
        self._silence.forget(gone)
        for name in [name for name, order in self._orders.items() if order.node in gone or order.expires < now]:
            self._forget(name)
        requests, expires = self._roll.due(now), now + self._patience
        self._send(
            requests, {node: Order(node, self._roll.limits(each), now, expires) for node, each in requests.items()}
        )
        silent = self._silence.due(self._orders, now)
        ready = Request("ready", self.federation, self.ledger.number)
        self._send(
            dict.fromkeys(silent, ready),
            {node: Order(node, Limits(), now, expires, before=names) for node, names in silent.items()},
        )

    # ---------------------------------------------------------------------------------------------- asking

    def ask(self, question: Question, clients: Sequence[int]) -> dict[int, Any]:
        """Ask clients, and wait for them as the settings say.

        Args:
            question: what.
            clients: whom.

        Returns:
            What was made of the replies, by client; `stale` says which of them are of earlier rounds.

        Raises:
            FederationError: if fewer than the minimum answered and that is a failure.
        """
        self.ledger.number = question.number
        current = Round(question, set(clients))
        minimum = min(self.settings.minimum, len(current.wanted))
        self._late.count_drawn(current)
        until = time.monotonic() + self.settings.timeout
        while True:
            self._look()
            self._dispatch(current)
            self._collect(current)
            late = time.monotonic() > until
            if late or not self._is_hope(current, minimum):
                if len(current.got) >= minimum or self.settings.on_few != "wait":
                    break
                if late:
                    until = time.monotonic() + self.settings.timeout
                    current.failed.clear()
                    self._tell_waiting(current, minimum)
            self._wait()
        self.ledger.missing(current, self._orders.values(), self.settings.timeout)
        if len(current.got) < minimum and self.settings.on_few == "fail":
            raise FederationError(
                f"{len(current.got)} of {len(current.wanted)} clients answered in round {question.number + 1} and at "
                f"least {minimum} must; the state is saved: look after the nodes and continue with --resume"
            )
        return current.got

    def _is_hope(self, current: Round, minimum: int) -> bool:
        """Whether somebody may still answer: who was asked, a node that may host them, or one busy with an old order.

        Those are waited for where their answer can count: late, if it is weighed, or because too few have answered.
        """
        if not current.waiting:
            return False
        if any(census.is_open for census in self.attendance.censuses.values()):
            return True
        if (current.waiting & self.attendance.holder.keys()) - self._busy():
            return True  # a node has just said that it hosts them
        patient = self.settings.late == "weigh" or not current.question.trains or len(current.got) < minimum
        return any(
            current.waiting.intersection(order.clients)
            for order in self._orders.values()
            if order.question is current.question or (patient and order.question is not None)
        )

    def _dispatch(self, current: Round) -> None:
        """Send requests to the nodes of clients that wait for one, unless they are at work on another."""
        by_node: dict[int, list[int]] = {}
        for client in sorted(current.waiting - self._busy()):
            node = self.attendance.holder.get(client)
            if node is not None:
                by_node.setdefault(node, []).append(client)
        question = current.question
        requests = {node: question.make_request(theirs) for node, theirs in sorted(by_node.items())}
        now = time.monotonic()
        orders = {
            node: Order(node, question.limits(len(theirs)), now, now + self._patience, tuple(theirs), question)
            for node, theirs in by_node.items()
        }
        self._send(requests, orders)

    @property
    def _patience(self) -> float:
        """Seconds after which an order counts as lost, and its clients can be asked again."""
        return _PATIENCE if self.settings.on_few == "wait" else (1 + self.settings.late_rounds) * self.settings.timeout

    def _busy(self) -> set[int]:
        """Clients whose node is at work for them; not those whose node was lost and is another one now."""
        holder = self.attendance.holder
        return {
            client
            for order in self._orders.values()
            for client in order.clients
            if holder.get(client, order.node) == order.node
        }

    def _send(self, requests: Mapping[int, Request], orders: Mapping[int, Order]) -> None:
        ttl = self._patience + _MARGIN
        messages = [
            Message(request.pack(), dst_node_id=node, message_type="train", ttl=ttl, group_id=str(request.number + 1))
            for node, request in requests.items()
        ]
        if not messages:
            return
        self._pause = _SHORTEST
        for name, node in zip(push_whole(self.grid, messages, self._wait), requests, strict=False):
            if name:
                self._orders[name] = orders[node]

    def _wait(self) -> None:
        """Wait, longer from time to time, so that long rounds don't keep the SuperLink busy with questions."""
        time.sleep(self._pause)
        self._pause = min(1.3 * self._pause, _LONGEST)

    # ---------------------------------------------------------------------------------------------- replies

    def _collect(self, current: Round | None) -> None:
        """Take in the replies that there are."""
        if not self._orders:
            return
        over, self._over = self._over, set()
        for arrival in self._intake.pull({name: order.limits for name, order in self._orders.items()}):
            self._pause = _SHORTEST
            order = self._orders.pop(arrival.order, None)
            if order is None or arrival.lost:
                continue
            if order.question is None:
                self._hear(order, arrival)
                continue
            if arrival.away:
                self._doubt(order)
                continue
            self._silence.heard(order.node)
            good, bad = judge(order, order.question, arrival, self.ledger)
            if current is not None and order.question is current.question:
                current.got |= {client: value for client, value in good.items() if client not in current.got}
                current.failed |= bad
            else:
                self._late.take(order.question, good, current)
        # A reply that the list of this time did not have yet is in the next: only then is it lost.
        for name in over & self._orders.keys():
            self._lose(name)

    def _hear(self, order: Order, arrival: Arrival) -> None:
        """Take in whom a node hosts, or that it is through with what it was given."""
        if order.is_census:
            if self._roll.hear(order.node, arrival):
                self._forget_censuses(order.node)
        elif arrival.content is not None:
            self._over |= order.before
        elif arrival.refusal:
            self.ledger.strike_node(order.node)

    def _doubt(self, order: Order) -> None:
        """Ask a node again whom it hosts that the SuperLink has lost sight of.

        It may be at work all the while, or be killed, and another one have its clients since.
        """
        if lost := self.attendance.doubt(order.node):
            self.ledger.fault(lost, "lost", "the SuperLink has lost sight of their node, which is asked again")

    def _lose(self, name: str) -> None:
        """Give an order up whose node is through with it, though no reply has come."""
        order = self._orders[name]
        assert order.question is not None
        self._forget(name)
        why = f"the order of round {order.question.number + 1} or its reply was lost on the way"
        self.ledger.fault(order.clients, "lost", why)

    def _tell_waiting(self, current: Round, minimum: int) -> None:
        _log.warning(
            "round %d: %d of %d clients have answered after another %g seconds, %d must; still waiting for clients %s",
            self.ledger.number + 1, len(current.got), len(current.wanted), self.settings.timeout, minimum,
            spelled(sorted(current.waiting))[:200],
        )  # fmt: skip

    def _forget_censuses(self, node: int) -> None:
        """A node that has said whom it hosts need not say it again."""
        for name in [name for name, order in self._orders.items() if order.node == node and order.is_census]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self._orders[name]
        self._intake.forget(name)
