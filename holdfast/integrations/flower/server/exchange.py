"""Asking clients: requests go to the nodes that have them, replies are checked, and nobody can hold the rest up.

Nodes come and go. Who has which client is asked of every node that appears, and again where the answer is lost. A node
is known by a secret in its state folder, so one that was killed and started again has its clients back at once, is
asked again in the same round, and no other node can claim them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from holdfast.errors import FederationError
from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.wire import Request, head_of, whole, wholes, word
from holdfast.integrations.flower.settings import Fault, FlowerSettings

_log = logging.getLogger("holdfast.federated.flower")
#: Seconds between questions for replies, at first and at most; between looks for nodes; that replies may be late.
_SHORTEST, _LONGEST, _LOOK, _MARGIN = 0.1, 1.0, 1.0, 60.0
_MOST_CLIENTS, _MOST_EXAMPLES = 10**6, 2**40
#: Seconds after which a node that has not said whom it has is asked again, twice as many every time; how often it may
#: fail before nobody waits for it.
_AGAIN, _FAILURES = 5.0, 3
#: How often messages are sent that the SuperLink has not taken whole.
_SENDINGS = 5
_DIMENSIONS, _LETTERS = 8, 300

#: Takes the clients that were asked and the content of the reply. Returns what it makes of each client that answered
#: well, and for others why not; raises `RejectedError` where the whole reply is of no use.
Reader = Callable[[Sequence[int], RecordDict], tuple[dict[int, Any], dict[int, str]]]


@dataclass(frozen=True)
class ClientFacts:
    """What a client says of itself.

    Attributes:
        train: number of training examples.
        validation: of validation examples.
        test: of test examples.
        classes: in its data.
        task: how outputs are scored.
        shape: of an input.
    """

    train: int
    validation: int
    test: int
    classes: int
    task: str
    shape: tuple[int, ...]


@dataclass
class _Sent:
    """A message under way: to which node, and for whom; for nobody if it is a census."""

    node: int
    clients: tuple[int, ...] = ()


@dataclass
class _Census:
    """What became of asking a node whom it has: how often it was asked and failed, and whether it has said it."""

    attempts: int = 0
    failed: int = 0
    due: float = 0.0
    answered: bool = False

    def put_off(self, now: float) -> None:
        """Not before some seconds have passed, for a node may be slow; and ever more rarely, for it may be broken."""
        self.due = now + _AGAIN * 2**self.attempts
        self.attempts += 1

    @property
    def is_hopeless(self) -> bool:
        return not self.answered and self.failed >= _FAILURES

    @property
    def is_open(self) -> bool:
        return not self.answered and self.failed < _FAILURES


@dataclass
class Exchange:
    """Talks to the nodes of a run.

    Attributes:
        grid: of the run.
        settings: timeout, minimum and what to do when few answer.
        federation: its name, 32 hexadecimal digits.
        facts: what each client has said of itself.
        faults: what went wrong, oldest first.
    """

    grid: Any
    settings: FlowerSettings
    federation: str
    facts: dict[int, ClientFacts] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    _holder: dict[int, int] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)
    _owner: dict[int, str] = field(default_factory=dict)
    _expelled: set[int] = field(default_factory=set)
    _turned_away: set[int] = field(default_factory=set)
    _censuses: dict[int, _Census] = field(default_factory=dict)
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _looked: float = 0.0
    _number: int = 0
    _pause: float = _SHORTEST

    # ---------------------------------------------------------------------------------------------- who is there

    def gather(self) -> None:
        """Wait until as many nodes as there should be have said whom they have, or failed too often.

        Raises:
            FederationError: if they don't in time.
        """
        until = time.monotonic() + self.settings.timeout
        while (heard := self._heard()) < self.settings.nodes:
            if time.monotonic() > until:
                why = f" (the last trouble: {self.faults[-1].reason})" if self.faults else ""
                raise FederationError(
                    f"{heard} of {self.settings.nodes} nodes said within {self.settings.timeout:g} seconds whom they "
                    f"have{why}; start the others, or give --nodes and --timeout as they are"
                )
            self._look()
            self._collect({}, {}, None)
            self._wait()

    def _heard(self) -> int:
        """How many nodes need not be waited for."""
        hopeless = sum(census.is_hopeless for census in self._censuses.values())
        return len(set(self._owner.values())) + len(self._turned_away) + hopeless

    def expel(self, client: int, reason: str) -> None:
        """Leave a client out from now on."""
        self._expelled.add(client)
        self._holder.pop(client, None)
        self._fault((client,), "refused", reason)

    def _look(self) -> None:
        """Ask nodes whom they have that have not said it yet, and forget those that are gone."""
        if time.monotonic() - self._looked < _LOOK:
            return
        now = self._looked = time.monotonic()
        here = set(self.grid.get_node_ids())
        self._censuses = {node: self._censuses.get(node, _Census()) for node in sorted(here)}
        due = {node: census for node, census in self._censuses.items() if not census.answered and census.due <= now}
        for census in due.values():
            census.put_off(now)
        self._send({node: Request("census", self.federation) for node in due})
        self._sent = {name: sent for name, sent in self._sent.items() if sent.node in here}
        self._holder = {client: node for client, node in self._holder.items() if node in here}

    def _hear(self, node: int, message: Message) -> bool:
        """Take in what came when a node was asked whom it has, and return whether it has said it.

        One that failed is asked again: the SuperLink may have lost the answer. One that says what can't be is not.
        """
        if message.has_error():
            self._censuses[node].failed += 1
            self._fault((), "failed", f"node {node} was asked whom it has: {_failure(message)}")
            return False
        self._censuses[node].answered = True
        self._sent = {name: sent for name, sent in self._sent.items() if sent.clients or sent.node != node}
        try:
            self._admit(node, message.content)
        except RejectedError as error:
            self._turned_away.add(node)
            self._fault((), "refused", f"node {node} was asked whom it has: {error}")
            return False
        return True

    def _admit(self, node: int, content: RecordDict) -> None:
        head = head_of(content)
        ids, secret = wholes(head, "clients"), word(head, "identity")
        if len(ids) > _MOST_CLIENTS or len(set(ids)) < len(ids) or any(not 0 <= one < _MOST_CLIENTS for one in ids):
            raise RejectedError(f"it claims {len(ids)} clients that can't be; ids differ and go from 0 to a million")
        counts = [wholes(head, part, len(ids)) for part in ("train", "validation", "test")]
        if any(not 0 <= count <= _MOST_EXAMPLES for part in counts for count in part) or any(n < 1 for n in counts[0]):
            raise RejectedError("it claims numbers of examples that can't be")
        shape = tuple(wholes(head, "shape"))
        classes, task = whole(head, "classes"), word(head, "task")
        possible = all(1 <= side <= _MOST_CLIENTS for side in (*shape, classes)) and len(shape) <= _DIMENSIONS
        if not possible or task not in ("classes", "margin"):
            raise RejectedError("it describes data that can't be")
        back = [client for client in ids if self._last.get(client, node) != node and self._owner.get(client) == secret]
        if back:
            self._fault(tuple(back), "returned", "their node was lost and has been started again")
        for client, train, validation, test in zip(ids, *counts, strict=True):
            facts = ClientFacts(train, validation, test, classes, task, shape)
            if self._owner.setdefault(client, secret) != secret:
                self._fault((client,), "refused", f"node {node} claims client {client}, who belongs to another node")
            elif self.facts.setdefault(client, facts) != facts:
                self._fault((client,), "refused", f"client {client} came back with other data; start a new federation")
            elif client not in self._expelled:
                self._holder[client] = self._last[client] = node

    # ---------------------------------------------------------------------------------------------- asking

    def ask(
        self, number: int, clients: Sequence[int], make_request: Callable[[Sequence[int]], Request], read: Reader
    ) -> dict[int, Any]:
        """Ask clients, and wait for them as the settings say.

        Args:
            number: of the round, for the record.
            clients: whom.
            make_request: makes the request for the clients of one node.
            read: makes something of a reply.

        Returns:
            What was made of the replies, by client.

        Raises:
            FederationError: if fewer than the minimum answered and that is a failure.
        """
        self._number = number
        wanted, got = set(clients), dict[int, Any]()
        failed: dict[int, tuple[str, str]] = {}
        minimum = min(self.settings.minimum, len(wanted))
        until = time.monotonic() + self.settings.timeout
        while True:
            self._look()
            self._dispatch(wanted - got.keys() - failed.keys(), make_request)
            heard = self._collect(got, failed, read)
            late = time.monotonic() > until
            hope = heard or self._is_hope(wanted - got.keys() - failed.keys())
            if len(got) == len(wanted) or late or not hope:
                if len(got) >= minimum or self.settings.on_few != "wait":
                    break
                if late:
                    until = time.monotonic() + self.settings.timeout
                    failed.clear()
                    self._give_up()
            self._wait()
        self._record(wanted - got.keys(), failed)
        self._give_up()
        if len(got) < minimum and self.settings.on_few == "fail":
            raise FederationError(
                f"{len(got)} of {len(wanted)} clients answered in round {number + 1} and at least {minimum} must; the "
                "state is saved: look after the nodes and continue with --resume"
            )
        return got

    def _is_hope(self, waiting: set[int]) -> bool:
        """Whether somebody may still answer: a node that has one of these clients, or one that may say it has."""
        may_have = any(census.is_open for census in self._censuses.values())
        return bool(waiting) and (may_have or any(waiting & set(sent.clients) for sent in self._sent.values()))

    def _give_up(self) -> None:
        """Expect no more replies to requests that are under way; those that come late are not looked at."""
        for name in [name for name, sent in self._sent.items() if sent.clients]:
            del self._sent[name]

    def _dispatch(self, waiting: set[int], make_request: Callable[[Sequence[int]], Request]) -> None:
        """Send requests to the nodes of clients that wait for one."""
        under_way = {(client, sent.node) for sent in self._sent.values() for client in sent.clients}
        by_node: dict[int, list[int]] = {}
        for client in sorted(waiting):
            node = self._holder.get(client)
            if node is not None and (client, node) not in under_way:
                by_node.setdefault(node, []).append(client)
        self._send({node: make_request(theirs) for node, theirs in sorted(by_node.items())})

    def _send(self, requests: Mapping[int, Request]) -> None:
        ttl = self.settings.timeout + _MARGIN
        messages = [
            Message(request.pack(), dst_node_id=node, message_type="train", ttl=ttl, group_id=str(request.number + 1))
            for node, request in requests.items()
        ]
        if not messages:
            return
        self._pause = _SHORTEST
        for name, (node, request) in zip(self._push(messages), requests.items(), strict=False):
            if name:
                self._sent[name] = _Sent(node, tuple(request.clients))

    def _push(self, messages: Sequence[Message]) -> list[str]:
        """Hand messages to the SuperLink and return their names.

        One that is killed in the middle has stored parts that it never confirmed, and refuses them when they come
        again. The same messages pushed again are completed under their names; new ones in their place would leave
        nodes waiting for the rest of the old ones.

        Raises:
            FederationError: if it takes none of several times.
        """
        for _ in range(_SENDINGS):
            try:
                return list(self.grid.push_messages(messages))
            except ObjectPushError as error:
                _log.warning("the SuperLink has not taken messages whole (%s); they are sent again", str(error)[:100])
                self._wait()
        raise FederationError(
            f"the SuperLink refused parts of messages {_SENDINGS} times; its log says why. The state is saved: "
            "continue with --resume"
        )

    def _wait(self) -> None:
        """Wait, longer from time to time, so that long rounds don't keep the SuperLink busy with questions."""
        time.sleep(self._pause)
        self._pause = min(1.3 * self._pause, _LONGEST)

    def _collect(self, got: dict[int, Any], failed: dict[int, tuple[str, str]], read: Reader | None) -> bool:
        """Take in the replies that there are, and return whether a node has said whom it has."""
        heard = False
        for message in self._pull():
            self._pause = _SHORTEST
            sent = self._sent.pop(message.metadata.reply_to_message_id, None)
            if sent is None:
                continue
            if not sent.clients:
                heard |= self._hear(sent.node, message)
                continue
            pending = [client for client in sent.clients if client not in got]
            good: dict[int, Any] = {}
            bad: dict[int, tuple[str, str]] = {}
            try:
                if message.has_error():
                    raise RejectedError(_failure(message))
                if read is not None:
                    good, refused = read(sent.clients, message.content)
                    bad = {client: ("refused", why[:_LETTERS]) for client, why in refused.items()}
            except RejectedError as error:
                bad = dict.fromkeys(pending, ("failed" if message.has_error() else "refused", str(error)))
            left_out = ("refused", "the reply leaves the client out")
            for client in pending:
                if client in good:
                    got[client] = good[client]
                else:
                    failed[client] = bad.get(client, left_out)
        return heard

    def _pull(self) -> list[Message]:
        """Replies that have arrived; one that can't be read becomes an error of its node and of nobody else."""
        if not self._sent:
            return []
        try:
            return list(self.grid.pull_messages(list(self._sent)))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            _log.warning("a reply can't be read (%s); replies are taken one by one", str(error)[:100])
        messages: list[Message] = []
        for name, sent in list(self._sent.items()):
            try:
                messages += self.grid.pull_messages([name])
            except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                del self._sent[name]
                if not sent.clients:
                    self._censuses[sent.node].failed += 1
                self._fault(sent.clients, "refused", f"the reply can't be read: {str(error)[:100]}")
        return messages

    def _record(self, missing: set[int], failed: dict[int, tuple[str, str]]) -> None:
        """Write down who is missing and why."""
        reasons: dict[tuple[str, str], list[int]] = {}
        for client in sorted(missing):
            if client in failed:
                why = failed[client]
            elif client in self._holder:
                why = ("silent", f"no answer within {self.settings.timeout:g} seconds")
            else:
                why = ("away", "no node has the client")
            reasons.setdefault(why, []).append(client)
        for (kind, reason), clients in reasons.items():
            self._fault(tuple(clients), kind, reason)

    def _fault(self, clients: tuple[int, ...], kind: Any, reason: str) -> None:
        fault = Fault(self._number, clients, kind, reason)
        self.faults.append(fault)
        who = f"clients {list(clients)}" if clients else "a node"
        _log.warning("round %d: %s %s: %s", self._number + 1, who, kind, reason)


def _failure(message: Message) -> str:
    return f"the node failed: {str(message.error.reason)[:_LETTERS]}"
