"""Nodes that were admitted and speak by hand to a real SuperLink, through the proxy: whom their replies count for."""

from __future__ import annotations

import threading
import time

import httpx
import pytest
import torch
from flwr.app import Message
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node

from holdfast.integrations.flower.messages.objects import Limits
from holdfast.integrations.flower.messages.wire import Request, array, head_of, packed, wholes
from holdfast.integrations.flower.operation.credentials import make_node_key
from holdfast.integrations.flower.operation.membership import admit, register
from holdfast.integrations.flower.operation.service import serving
from holdfast.integrations.flower.rehearsal.driver import grid_of_new_run
from holdfast.integrations.flower.rehearsal.project import app_files
from holdfast.integrations.flower.server.exchange import Exchange
from holdfast.integrations.flower.server.members import Members
from holdfast.integrations.flower.server.questions import Answers, Question
from holdfast.integrations.flower.settings import FlowerSettings
from tests.integrations.flower.operation.insider import Insider
from tests.integrations.flower.operation.server import small_federation

pytestmark = pytest.mark.xdist_group("flower")

NAME, SIZE = "0123456789abcdef" * 2, 10


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = small_federation(tmp_path_factory.mktemp("server") / "federation")
    for name in ("north", "south"):
        make_node_key(folder.path / name)
        admit(folder, name, folder.path / f"{name}.pub", 1, 100)
    with serving(folder):
        register(folder.access(), folder.roster())
        yield folder


@pytest.fixture
def grid(federation):
    with grid_of_new_run(federation.access(), app_files({"model": "softmax"})) as grid:
        yield grid


@pytest.fixture
def nodes(federation):
    with Insider(federation, "north", [0]) as north, Insider(federation, "south", [1]) as south:
        yield north, south


class Server:
    """An exchange in a thread of its own: it asks both clients for an update."""

    def __init__(self, grid, federation, timeout: float = 120.0) -> None:
        self.exchange = Exchange(grid, FlowerSettings(nodes=2, timeout=timeout), NAME, Members(federation.roster()))
        self.got: dict[int, torch.Tensor] = {}

    def run(self, work) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def ask(self, number: int = 0) -> None:
        def read(asked, content):
            ids = wholes(head_of(content), "clients")
            return Answers(dict(zip(ids, array(content, "updates", (len(ids), SIZE), torch.float32), strict=True)))

        def request(some):
            return Request("train", NAME, number, 2, tuple(some), weights=torch.zeros(SIZE))

        limits = lambda some: Limits.of(some, {"updates": 4 * SIZE * some})  # noqa: E731
        self.got = self.exchange.ask(Question(number, request, read, limits), [0, 1])


def wait_for_order(node: Insider) -> Message:
    """The next order; questions whether the node is free are left unanswered, as if it were at work."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        message = node.pull()
        if message is not None and message.content["holdfast"]["action"] != "ready":
            return message
        time.sleep(0.1)
    raise AssertionError("no order came")


def update(value: float) -> torch.Tensor:
    return torch.full((1, SIZE), value)


@pytest.fixture
def server(grid, nodes, federation):
    """A server that has taken both nodes in."""
    server = Server(grid, federation)
    thread = server.run(server.exchange.gather)
    for node in nodes:
        node.push(node.answer(wait_for_order(node)))
    thread.join()
    assert server.exchange.attendance.holder == {0: nodes[0].number, 1: nodes[1].number}
    return server


def test_a_reply_to_an_order_of_another_node_changes_nothing(server, nodes):
    north, south = nodes
    thread = server.run(server.ask)
    to_north, to_south = wait_for_order(north), wait_for_order(south)
    forged = Message(packed({"number": 0, "clients": [1]}, {"updates": update(-50.0)}), reply_to=to_north)
    # In its own name it names the other's order; the SuperLink knows to whom that went.
    assert north.push(forged, reply_to_message_id=to_south.metadata.message_id) == []
    # In the other's name it names what the other's order would be, by all that it knows: all but the secret in it.
    guess = Message(to_north.content, dst_node_id=south.number, message_type="train", ttl=to_north.metadata.ttl)
    guess.content["holdfast"]["clients"] = [1]
    assert guess.content["holdfast"].keys() == to_south.content["holdfast"].keys()
    assert north.push(forged, src_node_id=south.number, reply_to_message_id=guess.object_id) == []
    # Its own order it can answer, for clients of its own only.
    north.push(forged, src_node_id=north.number, reply_to_message_id=to_north.metadata.message_id)
    south.push(south.answer(to_south, updates=update(1.0)))
    thread.join()
    assert list(server.got) == [1] and torch.equal(server.got[1], update(1.0)[0])
    assert [(fault.clients, fault.kind) for fault in server.exchange.faults] == [((0,), "refused")]


def test_whoever_knew_the_secret_of_an_order_could_answer_it_in_anothers_name(server, nodes):
    """Flower trusts the sender that a reply names, so the test above could fail: the secret is what protects."""
    north, south = nodes
    thread = server.run(server.ask)
    to_north, to_south = wait_for_order(north), wait_for_order(south)
    forged = Message(packed({"number": 0, "clients": [1]}, {"updates": update(-50.0)}), reply_to=to_north)
    secret = to_south.metadata.message_id
    assert north.push(forged, src_node_id=south.number, reply_to_message_id=secret) != []
    north.push(north.answer(to_north, updates=update(1.0)))
    thread.join()
    assert float(server.got[1][0]) == -50.0
    ids = {order.content["holdfast"]["nonce"] for order in (to_north, to_south)}
    assert len(ids) == 2 and all(len(one) == 32 for one in ids)


def test_only_the_first_reply_to_an_order_counts_and_none_of_an_earlier_round(server, nodes):
    north, south = nodes
    thread = server.run(server.ask)
    orders = [wait_for_order(node) for node in nodes]
    first = north.answer(orders[0], updates=update(1.0))
    north.push(first)
    again = north.push(north.answer(orders[0], updates=update(-50.0)))
    south.push(south.answer(orders[1], updates=update(1.0)))
    thread.join()
    assert {client: float(row[0]) for client, row in server.got.items()} == {0: 1.0, 1: 1.0}, again
    thread = server.run(lambda: server.ask(1))
    orders = [wait_for_order(node) for node in nodes]
    assert north.push(north.answer(orders[0], updates=update(7.0)), reply_to_message_id="0" * 64) == []
    for node, order in zip(nodes, orders, strict=True):
        node.push(node.answer(order, updates=update(2.0)))
    thread.join()
    assert {client: float(row[0]) for client, row in server.got.items()} == {0: 2.0, 1: 2.0}
    assert server.exchange.faults == []


def test_a_reply_for_another_run_is_refused(server, nodes):
    north, _ = nodes
    thread = server.run(server.ask)
    orders = [wait_for_order(node) for node in nodes]
    with pytest.raises(httpx.HTTPStatusError) as refused:
        north.push(north.answer(orders[0], updates=update(-50.0)), run_id=7)
    assert refused.value.response.status_code in (400, 404, 409, 412, 500)
    for node, order in zip(nodes, orders, strict=True):
        node.push(node.answer(order, updates=update(1.0)), run_id=order.metadata.run_id)
    thread.join()
    assert {client: float(row[0]) for client, row in server.got.items()} == {0: 1.0, 1: 1.0}


def test_a_node_gets_no_order_of_another(server, nodes):
    north, south = nodes
    thread = server.run(server.ask)
    to_north = wait_for_order(north)
    with pytest.raises(httpx.HTTPStatusError) as refused:
        north.client.PullMessages(PullMessagesRequest(node=Node(node_id=south.number)))
    assert refused.value.response.status_code == 401
    to_south = wait_for_order(south)
    north.push(north.answer(to_north, updates=update(1.0)))
    south.push(south.answer(to_south, updates=update(1.0)))
    thread.join()
    assert sorted(server.got) == [0, 1]
