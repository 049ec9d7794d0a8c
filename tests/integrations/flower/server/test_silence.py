"""Orders and replies that are lost on their way: the node is asked whether it is free, and given its order again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from holdfast.integrations.flower.messages.wire import Request, packed
from holdfast.integrations.flower.server.exchange import Exchange
from tests.integrations.flower.byte_grid import ByteGrid, Sent
from tests.integrations.flower.in_process import Nodes
from tests.integrations.flower.server.peers import Grid, Peer, ask, gathered
from tests.integrations.flower.small_federation import digest, options_of


@pytest.fixture(autouse=True)
def patient(monkeypatch, impatient):
    """Waiting moves the clock, so a timeout of minutes takes a few hundred looks."""
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._SHORTEST", 0.1)
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._LONGEST", 1.0)


def kinds(exchange: Exchange) -> list[str]:
    return [fault.kind for fault in exchange.faults]


def test_a_node_whose_reply_is_lost_gets_its_order_again_in_the_same_round(clock):
    peer = Peer("b", [1])
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=peer), timeout=300.0)
    peer.lost_replies, started = 1, clock.now

    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert peer.trained == [1, 1]
    assert 30.0 <= clock.now - started < 40.0  # a tenth of the timeout, and not 1 + 5 timeouts
    (fault,) = exchange.faults
    assert (fault.kind, fault.clients) == ("lost", (1,))
    assert fault.reason == "the order of round 1 or its reply was lost on the way"


def test_a_node_that_is_at_work_is_not_given_a_second_order(clock):
    slow = Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=slow)
    exchange = gathered(grid, timeout=300.0)
    slow.silent = True
    assert sorted(ask(exchange, [0, 1])) == [0]
    assert slow.trained == [] and kinds(exchange) == ["silent"]
    assert 2 <= slow.inquiries <= 5  # after 30, 60 and 120 seconds
    slow.silent = False
    grid.release()
    assert sorted(ask(exchange, [0, 1], number=1)) == [0, 1]
    assert slow.trained == [1, 1]
    assert kinds(exchange) == ["silent", "late"]


def test_a_question_whose_own_answer_is_lost_is_asked_again(clock):
    peer = Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=peer)
    exchange = gathered(grid, timeout=300.0)
    peer.lost_replies = 1
    usual = grid.deliver

    def deliver(name, message):
        if Request.of(message.content).action != "ready" or peer.inquiries:
            usual(name, message)
        else:
            peer.inquiries += 1

    grid.deliver = deliver
    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert kinds(exchange) == ["lost"]


def test_an_answer_to_the_question_that_comes_before_the_reply_does_not_lose_it(clock):
    """Where replies are asked for one by one, one may come between two questions; the next list has it."""
    peer = Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=peer)
    exchange = gathered(grid, timeout=300.0)
    usual, kept = grid.pull_messages, {}

    def pull(names):
        there = usual(names)
        asked = [reply for reply in there if set(reply.content["holdfast"]) == {"format", "number"}]
        held = [reply for reply in there if reply.metadata.src_node_id == 5 and reply not in asked and not kept]
        kept.update({reply.metadata.reply_to_message_id: reply for reply in held})
        if asked:
            grid.replies.update(kept)
        return [reply for reply in there if reply not in held]

    grid.pull_messages = pull
    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert peer.trained == [1]
    assert exchange.faults == []


def test_an_order_of_an_earlier_round_that_was_lost_keeps_nobody_busy(clock):
    peer = Peer("b", [1])
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=peer), timeout=20.0)
    peer.silent = True
    assert sorted(ask(exchange, [0, 1])) == [0]
    peer.silent = False  # what it was asked is lost, and so are the questions
    clock.sleep(20.0)
    assert sorted(ask(exchange, [0, 1], number=1)) == [0]
    assert kinds(exchange) == ["silent", "busy"]
    assert sorted(ask(exchange, [0, 1], number=2)) == [0, 1]
    assert kinds(exchange) == ["silent", "busy", "lost"]
    assert peer.trained == [1]


def test_a_node_that_always_loses_its_order_gets_few_and_holds_nobody_up_beyond_the_timeout(clock):
    liar = Peer("b", [1])
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=liar), timeout=300.0)
    liar.lost_replies, started = 10**6, clock.now
    for number in range(4):
        assert sorted(ask(exchange, [0, 1], number)) == [0]
    assert clock.now - started < 4 * 301
    assert len(liar.trained) <= 4 + 6


def test_an_answer_to_the_question_that_can_not_be_is_counted_against_its_node(clock):
    class Liar(Peer):
        def answer(self, message: Message):
            answer = super().answer(message)
            if Request.of(message.content).action != "ready":
                return answer
            return packed({"number": 0, "note": "x" * 100_000}, {"weights": torch.zeros(10**6)})

    liar = Liar("b", [1])
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=liar), timeout=300.0)
    liar.lost_replies = 10**6
    exchange.members.most_faults = 3
    rounds = [sorted(ask(exchange, [0, 1], number)) for number in range(3)]
    assert rounds == [[0]] * 3
    assert "expelled" in kinds(exchange)
    assert len(liar.trained) == 1  # such an answer frees nobody


def test_a_node_of_another_version_which_does_not_know_the_question_counts_as_busy_as_before(clock):
    class Old(Peer):
        def answer(self, message: Message):
            answer = super().answer(message)
            return Error(1, "unknown action") if Request.of(message.content).action == "ready" else answer

    old = Old("b", [1])
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=old), timeout=300.0)
    old.lost_replies = 1
    assert sorted(ask(exchange, [0, 1])) == [0]
    assert kinds(exchange) == ["silent"]


def test_a_node_that_says_it_is_free_frees_none_but_itself(clock):
    liar, slow = Peer("a", [0]), Peer("b", [1])
    grid = Grid(n7=liar, n5=slow)
    exchange = gathered(grid, timeout=300.0)
    liar.lost_replies, slow.silent = 10**6, True
    assert ask(exchange, [0, 1]) == {}
    assert {client for fault in exchange.faults if fault.kind == "lost" for client in fault.clients} == {0}
    slow.silent = False
    grid.release()
    assert slow.trained == [1]


# ---------------------------------------------------------------------------------------------- out of sight

AWAY = Error(ErrorCode.NODE_UNAVAILABLE, "Node Unavailable")


class Unseen(Peer):
    """Is at work when the SuperLink, which has heard no heartbeat of it, says that it is away."""

    def __init__(self, identity: str, clients: list[int], times: int) -> None:
        super().__init__(identity, clients)
        self.times, self.orders = times, 0

    def answer(self, message: Message):
        if Request.of(message.content).action != "train":
            return super().answer(message)
        self.orders += 1
        self.times -= 1
        return AWAY if self.times >= 0 else super().answer(message)


def test_a_node_that_the_superlink_lost_sight_of_is_asked_again_in_the_same_round(clock):
    unseen = Unseen("b", [1], times=1)
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=unseen), timeout=60.0)
    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert (unseen.orders, unseen.censuses) == (2, 2)
    assert [(fault.kind, fault.clients) for fault in exchange.faults] == [("lost", (1,))]


def test_the_end_of_a_node_that_was_killed_costs_its_clients_nothing_that_are_elsewhere_by_then(clock):
    """Where nodes need no key the next process is another node, and the old one counts as there for a minute."""
    killed, back = Peer("b", [1]), Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=killed)
    exchange = gathered(grid, timeout=60.0)
    killed.silent = True
    grid.nodes[9] = back
    back.silent = True
    usual, started = grid.get_node_ids, clock.now

    def look():
        for name, message in grid.held:
            if clock.now > started + 10 and message.metadata.dst_node_id == 5:
                grid.replies[name] = Message(AWAY, reply_to=message)
        grid.held = [held for held in grid.held if held[0] not in grid.replies]
        if clock.now > started + 20:
            back.silent = False
            grid.release()
        return usual()

    grid.get_node_ids = look
    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert back.trained == [1]
    assert kinds(exchange) == ["returned"]


def test_a_node_that_says_that_it_is_away_itself_gets_few_orders(clock):
    liar = Unseen("b", [1], times=10**6)
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=liar), timeout=300.0)
    started = clock.now
    for number in range(4):
        assert sorted(ask(exchange, [0, 1], number)) == [0]
    assert clock.now - started < 4 * 301
    assert liar.orders <= 10


# ---------------------------------------------------------------------------------------------- real nodes

NODES, CLIENTS, ROUNDS = 3, 12, 4


def options():
    words = ["--nodes", str(NODES), "--rounds", str(ROUNDS), "--local-steps", "5", "--executor", "serial"]
    words += ["--digits-clients.clients", str(CLIENTS), "--cohort", str(CLIENTS), "--timeout", "60"]
    return options_of(*words, "--personalize", "ditto+finetuning", "--ditto.lambda", "0.5")


def memories(nodes: Nodes) -> dict[str, str]:
    """What all clients remember, by where."""
    files = sorted(nodes.folder.glob("*/*/client-*/after-*"))
    return {f"{file.parts[-4]}/{file.parts[-2]}/{file.name}": digest(file) for file in files}


class Losses:
    """Loses the first order to train in every second round at each node, to tune and to score.

    Lost is the order, or its reply, or a part of that; or the reply comes too late, when its order was given again.
    """

    def __init__(self, grid: ByteGrid, how: str) -> None:
        self.how, self.lost, self.seen, self.doomed = how, 0, set(), set()
        self.deliver, grid.deliver = grid.deliver, self.lose
        self.take, grid.take = grid.take, self.drop
        self.late: dict[int, tuple[str, Sent]] = {}

    def lose(self, name: str, message: Message) -> None:
        node, request = message.metadata.dst_node_id, Request.of(message.content)
        what = (node, request.action, request.number)
        if request.action in ("census", "ready") or request.number % 2 or what in self.seen:
            if request.action != "ready" and node in self.late:
                self.take(*self.late.pop(node))
            self.deliver(name, message)
            return
        self.seen.add(what)
        self.lost += 1
        self.doomed.add(name)
        if self.how != "order":
            self.deliver(name, message)

    def drop(self, name: str, sent: Sent) -> None:
        if name not in self.doomed:
            self.take(name, sent)
        elif self.how == "part":
            parts = {each: None if content[:5] == b"Array" else content for each, content in sent.objects.items()}
            self.take(name, replace(sent, objects=parts))
        elif self.how == "late":
            self.late[sent.message.metadata.src_node_id] = (name, sent)


@pytest.mark.parametrize("how", ["order", "reply", "part", "late"])
def test_whatever_is_lost_nothing_is_trained_or_counted_twice(how, tmp_path, clock):
    """Shared model, personal models and counts are those of a federation that has lost nothing, to the bit."""
    calm = Nodes(tmp_path / "calm", options(), NODES)
    expected = calm.federate()
    nodes = Nodes(tmp_path / "lossy", options(), NODES)
    grid = nodes.grid()
    losses = Losses(grid, how)
    outcome = nodes.federate(grid=grid)

    assert losses.lost >= NODES * (ROUNDS // 2 + 1)
    assert torch.equal(outcome.weights, expected.weights)
    assert outcome.joined.tolist() == expected.joined.tolist() == [ROUNDS] * CLIENTS
    assert {fault["kind"] for fault in outcome.faults} == {"lost"}
    for label in expected.reports:
        assert torch.equal(outcome.reports[label].scores.correct, expected.reports[label].scores.correct)
    before, after = memories(calm), memories(nodes)
    assert len(before) > CLIENTS and before == after
