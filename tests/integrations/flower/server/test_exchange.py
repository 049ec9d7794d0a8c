"""Who is asked, who is waited for, and what happens when nobody answers: against a Grid of a few lines."""

from __future__ import annotations

import itertools

import pytest
from flwr.app.error import Error
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from holdfast.errors import FederationError
from holdfast.integrations.flower.server.federation import roll
from tests.integrations.flower.server.peers import Grid, Peer, ask, gathered


def test_clients_are_asked_at_the_node_that_has_them():
    first, second = Peer("a", [0, 1]), Peer("b", [2])
    exchange = gathered(Grid(n7=first, n5=second))

    assert ask(exchange, [0, 2]) == {0: "fine", 2: "fine"}
    assert (first.trained, second.trained) == ([0], [2])
    assert exchange.faults == []


def test_nodes_that_do_not_appear_are_named():
    with pytest.raises(FederationError, match=r"1 of 2 nodes reported their clients within 0\.2 seconds"):
        gathered(Grid(n7=Peer("a", [0])), nodes=2)


def test_a_silent_node_costs_its_clients_the_round_and_others_nothing():
    silent = Peer("b", [2, 3])
    grid = Grid(n7=Peer("a", [0, 1]), n5=silent)
    exchange = gathered(grid)
    silent.silent = True

    assert sorted(ask(exchange, [0, 1, 2, 3], number=4)) == [0, 1]
    (fault,) = exchange.faults
    assert fault.as_dict() == {
        "round": 5,
        "clients": [2, 3],
        "kind": "silent",
        "reason": "no answer within 0.2 seconds",
    }
    silent.silent = False
    assert sorted(ask(exchange, [0, 1, 2, 3], number=5)) == [0, 1]
    assert exchange.faults[-1].as_dict()["reason"] == "still at work on round 5"
    grid.release()
    assert sorted(ask(exchange, [0, 1, 2, 3], number=6)) == [0, 1, 2, 3]
    assert [fault.kind for fault in exchange.faults] == ["silent", "busy", "late"]


def test_a_node_that_fails_is_not_waited_for():
    broken = Peer("b", [1])
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=broken), timeout=60.0)
    broken.broken = True

    assert sorted(ask(exchange, [0, 1])) == [0]
    assert (exchange.faults[0].kind, exchange.faults[0].clients) == ("failed", (1,))
    assert "out of memory" in exchange.faults[0].reason


def test_clients_of_a_node_that_is_gone_are_away():
    grid = Grid(n7=Peer("a", [0]), n5=Peer("b", [1]))
    exchange = gathered(grid, timeout=60.0)
    del grid.nodes[5]

    assert sorted(ask(exchange, [0, 1])) == [0]
    assert exchange.faults[0].kind == "away"


def test_a_node_that_comes_back_under_another_name_is_asked_again_in_the_same_round():
    lost = Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=lost)
    exchange = gathered(grid, timeout=60.0)
    lost.silent = True
    grid.nodes[9] = Peer("b", [1])

    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert grid.nodes[9].trained == [1]
    assert [(fault.kind, fault.clients) for fault in exchange.faults] == [("returned", (1,))]


LOST = {"error": Error(201, "the SuperLink lost the message"), "silence": None}


@pytest.mark.parametrize("lost", LOST)
def test_a_node_whose_answer_is_lost_is_asked_again_at_the_start(clock, lost):
    peer = Peer("b", [1])
    peer.lost = [LOST[lost]]
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=peer), timeout=60.0)

    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert peer.censuses == 2
    assert [fault.kind for fault in exchange.faults] == (["failed"] if lost == "error" else [])


@pytest.mark.parametrize("lost", LOST)
def test_a_node_that_comes_back_is_asked_again_in_the_same_round_though_its_answer_is_lost(clock, lost):
    grid = Grid(n7=Peer("a", [0]), n5=Peer("b", [1]))
    exchange = gathered(grid, timeout=60.0)
    back = grid.nodes[9] = Peer("b", [1])
    del grid.nodes[5]
    back.lost = [LOST[lost], LOST[lost]]

    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert (back.censuses, back.trained) == (3, [1])


def test_a_node_is_asked_ever_more_rarely_and_never_given_up(clock):
    grid = Grid(n7=Peer("a", [0]), n5=Peer("b", [1]))
    exchange = gathered(grid, timeout=60.0)
    back = grid.nodes[9] = Peer("b", [1])
    del grid.nodes[5]
    back.lost = [LOST["error"]] * 6
    start, asked, rounds = clock.now, [0.0], [ask(exchange, [0, 1])]
    while 1 not in rounds[-1] and len(rounds) < 1000:
        clock.sleep(1.0)
        before = back.censuses
        rounds.append(ask(exchange, [0, 1], number=len(rounds)))
        asked += [clock.now - start] * (back.censuses - before)

    assert asked[-4:] == pytest.approx([35.0, 75.0, 155.0, 315.0], abs=2.0)
    assert back.censuses == 7


def unreadable(grid: Grid, node: int) -> None:
    usual = grid.pull_messages

    def pull(names):
        found = usual(names)
        if any(reply.metadata.src_node_id == node for reply in found):
            for reply in found:
                grid.replies[reply.metadata.reply_to_message_id] = reply
            raise ValueError("object can't be inflated")
        return found

    grid.pull_messages = pull


@pytest.mark.parametrize("readable", [True, False])
def test_a_node_that_always_fails_when_asked_whom_it_has_holds_neither_the_start_nor_rounds_up(clock, readable):
    broken = Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=broken)
    if readable:
        broken.lost = [LOST["error"]] * 100
    else:
        unreadable(grid, node=5)
    exchange = gathered(grid, timeout=300.0)

    assert list(exchange.members.facts) == [0]
    assert broken.censuses == 3
    started = clock.now
    assert sorted(ask(exchange, [0, 1])) == [0]
    assert clock.now == started


def test_clients_that_failed_are_not_waited_for_while_a_node_has_not_said_whom_it_has(clock):
    broken = Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=broken)
    exchange = gathered(grid, timeout=60.0)
    broken.broken = True
    grid.nodes[9] = Peer("c", [2])
    grid.nodes[9].lost = [LOST["error"]]
    started = clock.now

    assert sorted(ask(exchange, [0, 1])) == [0]
    assert clock.now == started


def test_a_start_that_fails_because_a_node_does_says_why(clock):
    broken = Peer("b", [1])
    broken.lost = [Error(1, "out of memory")] * 100
    with pytest.raises(FederationError, match=r"1 of 2 nodes reported their clients .*node 5 .*out of memory"):
        gathered(Grid(n7=Peer("a", [0]), n5=broken), timeout=4.0)


def test_a_late_answer_counts_and_its_repetition_is_not_looked_at(clock):
    slow = Peer("b", [1], train=[-5])
    grid = Grid(n7=Peer("a", [0]), n5=slow)
    usual = grid.pull_messages

    def pull(names):
        return usual(names) if slow.censuses == 2 else []

    grid.pull_messages = pull
    exchange = gathered(grid, timeout=60.0)

    assert sorted(ask(exchange, [0])) == [0]
    assert [fault.kind for fault in exchange.faults] == ["refused"]
    assert slow.censuses == 2


class LosingGrid(Grid):
    """A Grid whose SuperLink is killed in the middle of the pushes of those numbers, from 0."""

    def __init__(self, *lost: int, **nodes: Peer) -> None:
        super().__init__(**nodes)
        self.lost, self.pushed = set(lost), []

    def push_messages(self, messages):
        self.pushed.append(list(messages))
        if len(self.pushed) - 1 in self.lost:
            raise ObjectPushError("an object", 1, "a session")
        return super().push_messages(messages)


def test_messages_that_the_superlink_has_not_taken_whole_are_sent_again_and_no_others():
    peer = Peer("a", [0, 1])
    grid = LosingGrid(0, 2, 3, n7=peer)
    exchange = gathered(grid)

    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    census, again, order, second, third = grid.pushed
    assert census[0] is again[0]
    assert order[0] is second[0] is third[0]
    assert peer.trained == [0, 1]
    assert exchange.faults == []


def test_a_superlink_that_never_takes_messages_whole_ends_the_federation_in_a_sentence():
    with pytest.raises(FederationError, match="refused parts of messages 5 times; its log says why"):
        gathered(LosingGrid(*range(5), n7=Peer("a", [0])))


def test_no_other_node_can_claim_a_client():
    grid = Grid(n7=Peer("a", [0]), n5=Peer("b", [1]))
    exchange = gathered(grid)
    grid.nodes[9] = Peer("thief", [1])

    ask(exchange, [0, 1])
    ask(exchange, [0, 1])

    assert grid.nodes[9].trained == []
    assert "claims 1 clients of others" in exchange.faults[0].reason


def test_too_few_answers_are_a_failure_where_that_is_wanted():
    silent = Peer("b", [1])
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=silent), minimum=2, on_few="fail")
    silent.silent = True
    with pytest.raises(FederationError, match=r"1 of 2 clients answered in round 3 and at least 2 must; .*--resume"):
        ask(exchange, [0, 1], number=2)


def test_too_few_answers_are_waited_for_where_that_is_wanted():
    slow = Peer("b", [1])
    grid = Grid(n7=Peer("a", [0]), n5=slow)
    exchange = gathered(grid, minimum=2, on_few="wait")
    slow.silent = True
    calls = itertools.count()
    usual = grid.get_node_ids

    def later():
        slow.silent = next(calls) < 200
        if not slow.silent:
            grid.release()
        return usual()

    grid.get_node_ids = later
    assert sorted(ask(exchange, [0, 1])) == [0, 1]
    assert slow.trained == [1]


@pytest.mark.parametrize(
    "census",
    [
        {"train": [-5]},
        {"train": [0]},
        {"train": [2**60]},
        {"train": [10, 10]},
        {"train": ["many"]},
        {"shape": [10**12]},
        {"shape": [1] * 50},
        {"classes": -1},
        {"task": "regression"},
        {"clients": [-1]},
        {"clients": [1, 1]},
        {"clients": [10**9]},
        {"clients": "all of them"},
        {"identity": 5},
    ],
)
def test_a_node_whose_claims_can_not_be_is_turned_away_and_does_not_stop_the_start(census):
    exchange = gathered(Grid(n7=Peer("a", [0]), n5=Peer("b", [1], **census)))

    assert list(exchange.members.facts) == [0]
    assert sorted(ask(exchange, [0, 1])) == [0]
    assert exchange.faults[0].kind == "refused"
    assert "node 5 was asked whom it hosts" in exchange.faults[0].reason


def test_a_reply_that_can_not_be_read_is_the_fault_of_its_sender_alone():
    grid = Grid(n7=Peer("a", [0]), n5=Peer("b", [1]))
    exchange = gathered(grid)
    unreadable(grid, node=5)
    assert sorted(ask(exchange, [0, 1])) == [0]
    assert "can't be read" in exchange.faults[0].reason


def test_the_server_knows_numbers_and_no_data():
    counts = {"train": [7, 8], "validation": [1, 2], "test": [3, 2**39]}
    exchange = gathered(Grid(n7=Peer("a", [0, 1], **counts)))

    clients = roll(exchange)

    assert len(clients) == 2
    assert clients.train.counts.tolist() == [7, 8]
    assert clients.test.counts.tolist() == [3, 2**39]
    assert clients.input_shape == (3,)


def test_clients_beyond_a_gap_and_with_other_data_are_left_out():
    grid = Grid(n1=Peer("a", [0, 1]), n2=Peer("b", [2], shape=[4]), n3=Peer("c", [5]))
    exchange = gathered(grid)

    assert len(roll(exchange)) == 2
    assert {client for fault in exchange.faults for client in fault.clients} == {5}
    assert "its data is (4,)" in exchange.faults[0].reason
    assert sorted(ask(exchange, [0, 1, 2, 5])) == [0, 1]
