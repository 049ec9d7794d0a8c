"""What a node sends is looked at before it is fetched, and whatever is wrong with it is a fault of that node alone."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from holdfast.integrations.flower.messages.objects import Limits
from holdfast.integrations.flower.messages.wire import Request, array, head_of, packed, wholes
from holdfast.integrations.flower.server.exchange import Exchange
from holdfast.integrations.flower.server.questions import Answers, Question
from holdfast.integrations.flower.settings import FlowerSettings
from tests.integrations.flower.byte_grid import ByteGrid, Sent, as_sent
from tests.integrations.flower.server.peers import Clock

NAME = "0123456789abcdef" * 2
SIZE = 4


def census(client: int) -> RecordDict:
    counts = {part: [10] for part in ("train", "validation", "test")}
    about = {"identity": f"node of {client}", "classes": 2, "task": "classes", "shape": [3]}
    return packed({"clients": [client], **counts, **about}, {})


def honest(client: int):
    """A node with one client, which answers as it should."""

    def answer(message: Message) -> Message:
        request = Request.of(message.content)
        content = census(client)
        if request.action == "train":
            values = torch.full((1, SIZE), float(client))
            content = packed({"number": request.number, "clients": [client]}, {"updates": values})
        return Message(content, reply_to=message)

    return answer


def hostile(change):
    """A node with client 1 that changes its answers: `change` gets the honest one and the message."""

    def answer(message: Message):
        reply = honest(1)(message)
        return reply if Request.of(message.content).action == "census" else change(reply, message)

    return answer


def exchange_of(grid: ByteGrid, **settings) -> Exchange:
    exchange = Exchange(grid, FlowerSettings(nodes=len(grid.nodes), **{"timeout": 0.3, **settings}), NAME)
    exchange.gather()
    return exchange


def ask(exchange: Exchange, number: int = 0):
    def make_request(some):
        return Request("train", NAME, number, 2, tuple(some), weights=torch.zeros(SIZE))

    def read(asked, content):
        ids = wholes(head_of(content), "clients")
        return Answers(dict(zip(ids, array(content, "updates", (len(ids), SIZE), torch.float32), strict=True)))

    limits = lambda some: Limits.of(some, {"updates": 4 * SIZE * some})  # noqa: E731
    return exchange.ask(Question(number, make_request, read, limits), [0, 1])


def attacked(change, **settings) -> tuple[dict, Exchange, ByteGrid]:
    """A round with an honest and a hostile node; the honest one's update always counts."""
    grid = ByteGrid({10: honest(0), 11: hostile(change)})
    exchange = exchange_of(grid, **settings)
    got = ask(exchange)
    assert torch.equal(got[0], torch.zeros(SIZE))
    return got, exchange, grid


def with_objects(change):
    """Change what the SuperLink stores of a reply: `change` gets the content of each object by its kind."""

    def send(reply: Message, message: Message) -> Sent:
        sent = as_sent(reply)
        for name, content in list(sent.objects.items()):
            kind, body = content.split(b" ", 1)[0].decode(), content.partition(b"\0")[2]
            changed = change(kind, body)
            if changed is not body:
                head = content.partition(b"\0")[0].rpartition(b" ")[0]
                sent.objects[name] = None if changed is None else head + f" {len(changed)}\0".encode() + changed
        return sent

    return send


def test_a_garbled_record_is_a_fault_of_its_node():
    garbled = with_objects(lambda kind, body: b"\xff\xff\xff\xff" if kind == "ConfigRecord" else body)
    got, exchange, grid = attacked(garbled)
    assert list(got) == [0]
    assert [(fault.kind, fault.clients) for fault in exchange.faults] == [("refused", (1,))]
    assert "can't be read: DecodeError" in exchange.faults[0].reason
    assert len(grid.confirmed) == 4  # two censuses, two replies: nothing is left at the SuperLink


def test_an_array_that_nobody_asked_for_is_never_fetched():
    """It has 1.2 GB at the SuperLink; the server reads its name and none of its bytes."""
    giant = bytes(1_200_000_000)

    def send(reply: Message, message: Message) -> Sent:
        content = reply.content
        content["arrays"]["extra"] = Array("float32", (1,), "numpy.ndarray", b"here")
        sent = as_sent(Message(content, reply_to=message))
        place = next(name for name, each in sent.objects.items() if each.endswith(b"\0here"))
        sent.objects[place] = giant
        return sent

    tracemalloc.start()
    got, exchange, grid = attacked(send)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert list(got) == [0]
    assert "the array 'extra', which nobody asked for" in exchange.faults[0].reason
    assert sum(grid.fetched.values()) < 20_000
    assert peak < 50_000_000


def test_a_part_that_is_longer_than_it_may_be_is_not_read():
    long = with_objects(lambda kind, body: bytes(50_000_000) if kind == "ArrayChunk" else body)
    got, exchange, grid = attacked(long)
    assert list(got) == [0]
    assert "bytes where at most" in exchange.faults[0].reason
    assert max(grid.fetched.values()) < 20_000


def test_a_length_that_lies_does_not_make_the_server_read_on(monkeypatch):
    from tests.integrations.flower import byte_grid

    class Lying(byte_grid.Response):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            self.headers = {"content-length": "7"}

    monkeypatch.setattr(byte_grid, "Response", Lying)
    got, _, grid = attacked(with_objects(lambda kind, body: bytes(50_000_000) if kind == "ArrayChunk" else body))
    assert list(got) == [0]
    assert max(grid.fetched.values()) < 200_000


def test_a_chunk_that_is_named_a_thousand_times_is_not_copied_a_thousand_times():
    def again(kind, body):
        if kind != "Array":
            return body
        about = json.loads(body)
        return json.dumps({**about, "arraychunk_ids": [0] * 10_000}).encode()

    got, exchange, _ = attacked(with_objects(again))
    assert list(got) == [0]
    assert "bytes that fit" in exchange.faults[0].reason or "bytes where at most" in exchange.faults[0].reason


def test_a_part_that_is_announced_and_never_sent_holds_nobody_up():
    got, exchange, _ = attacked(with_objects(lambda kind, body: None if kind == "ArrayChunk" else body))
    assert list(got) == [0]
    assert exchange.faults[0].kind == "silent"


def test_a_part_that_comes_later_counts_in_the_same_round():
    grid = ByteGrid({10: honest(0), 11: hostile(with_objects(lambda kind, body: None if kind == "Array" else body))})
    exchange = exchange_of(grid, timeout=30.0)
    looks = iter(range(1000))
    missing = {}
    usual = grid.get_nodes

    def later():
        missing.update({name: None for name, content in grid.objects.items() if content is None})
        if missing and next(looks) > 5:
            whole = as_sent(Message(packed({}, {"updates": torch.ones(1, SIZE)}), dst_node_id=1, message_type="train"))
            grid.objects |= {name: whole.objects[name] for name in missing if name in whole.objects}
        return usual()

    grid.get_nodes = later
    assert sorted(ask(exchange)) == [0, 1]
    assert exchange.faults == []


STRANGE = {
    "another record": lambda content: content.__setitem__("more", ConfigRecord({"a": 1})),
    "a metric record": lambda content: content.__setitem__("metrics", MetricRecord({"a": 1.0})),
    "no head": lambda content: content.__delitem__("holdfast"),
    "no arrays": lambda content: content.__delitem__("arrays"),
    "arrays that are plain": lambda content: content.__setitem__("arrays", ConfigRecord({"a": 1})),
    "a head of arrays": lambda content: content.__setitem__("holdfast", ArrayRecord()),
    "a text of megabytes": lambda content: content["holdfast"].__setitem__("note", "x" * 5_000_000),
    "a list of a hundred thousand": lambda content: content["holdfast"].__setitem__("clients", list(range(100_000))),
    "others' clients": lambda content: content["holdfast"].__setitem__("clients", [0]),
    "no number": lambda content: content["holdfast"].__setitem__("clients", [2**63 - 1]),
    "not a number": lambda content: content["arrays"].__setitem__("updates", Array(np.full((1, SIZE), "a"))),
    "another byte order": lambda content: content["arrays"].__setitem__("updates", Array(np.zeros((1, SIZE), ">f4"))),
    "another dtype": lambda content: content["arrays"].__setitem__("updates", Array(np.zeros((1, SIZE), np.float64))),
    "objects": lambda content: content["arrays"].__setitem__(
        "updates", Array("object", (1, 4), "pickle", b"\x80\x04N.")
    ),
    "a name of control characters": lambda content: content["arrays"].__setitem__("\x1b[2J\n", Array(np.zeros(1))),
}


@pytest.mark.parametrize("change", STRANGE.values(), ids=STRANGE)
def test_records_that_nobody_asked_for_are_refused_with_a_sentence(change):
    def send(reply: Message, message: Message) -> Message:
        change(reply.content)
        return Message(reply.content, reply_to=message)

    got, exchange, grid = attacked(send)
    assert 1 not in got
    (fault,) = exchange.faults
    assert fault.kind == "refused"
    assert fault.reason.isprintable() and len(fault.reason) <= 1_300
    assert sum(grid.fetched.values()) < 100_000


DEEP = {
    "names nested ten thousand deep": ("RecordDict", b"[" * 30_000),
    "names that are no text": ("RecordDict", b'{"holdfast": 5}'),
    "an array nested ten thousand deep": ("Array", b'{"shape": ' + b"[" * 30_000),
    "an array of no shape": (
        "Array",
        b'{"arraychunk_ids": [], "dtype": "float32", "stype": "numpy.ndarray", "shape": 7}',
    ),
    "chunks that are not there": ("Array", b'{"arraychunk_ids": [99], "dtype": "f", "stype": "n", "shape": [1]}'),
    "a message that is none": ("Message", b"\xff" * 100),
    "nothing at all": ("ArrayRecord", b""),
}


@pytest.mark.parametrize(("kind", "body"), DEEP.values(), ids=DEEP)
def test_objects_that_are_not_what_they_say_are_refused(kind, body):
    changed = with_objects(lambda this, old: body if this == kind else old)
    got, exchange, _ = attacked(changed)
    if kind == "Message":  # its body is not looked at: the order that it answers is the SuperLink's word
        assert sorted(got) == [0, 1]
    else:
        assert list(got) == [0]
        assert exchange.faults[0].kind == "refused"


def test_a_list_of_replies_that_is_too_long_costs_one_node_its_reply(monkeypatch):
    monkeypatch.setattr("holdfast.integrations.flower.server.intake._LIST", 30_000)
    monkeypatch.setattr("holdfast.integrations.flower.server.intake._LIST_OF_REPLY", 100)

    def send(reply: Message, message: Message) -> Sent:
        sent = as_sent(reply)
        sent.message.metadata.group_id = "x" * 100_000
        return sent

    got, exchange, _ = attacked(send, timeout=5.0)
    assert list(got) == [0]
    assert ("refused", (1,)) in [(fault.kind, fault.clients) for fault in exchange.faults]


def test_escape_codes_and_newlines_of_a_node_reach_no_log(caplog):
    evil = "\x1b[2J\x1b[H\nround 1: all is well\r\u202e" + "x" * 100_000

    def fails(reply: Message, message: Message) -> Message:
        return Message(Error(1, evil), reply_to=message)

    def declines(reply: Message, message: Message) -> Message:
        head = {"number": 0, "clients": [], "refused": [1], "reasons": [evil]}
        return Message(packed(head, {"updates": torch.zeros(0, SIZE)}), reply_to=message)

    for change in (fails, declines):
        caplog.clear()
        _, exchange, _ = attacked(change)
        for text in [*(record.getMessage() for record in caplog.records), *(f.reason for f in exchange.faults)]:
            assert text.isprintable() and len(text) < 1_000


def test_a_node_is_expelled_when_too_many_of_its_replies_were_refused(monkeypatch):
    monkeypatch.setattr("holdfast.integrations.flower.server.attendance._AGAIN", 0.0)
    garbled = with_objects(lambda kind, body: b"\xff" if kind == "ConfigRecord" else body)
    grid = ByteGrid({10: honest(0), 11: hostile(garbled)})
    exchange = exchange_of(grid, most_faults=3)
    exchange.members.most_faults = 3
    for number in range(5):
        assert list(ask(exchange, number)) == [0]
    kinds = [fault.kind for fault in exchange.faults]
    assert kinds == ["refused", "refused", "expelled", "refused", "away", "away"]
    assert grid.asked.count(11) == 1 + 3
    grid.since[11] = "a restart later"
    assert list(ask(exchange, 6)) == [0]
    assert grid.asked.count(11) == 1 + 3 + 1  # its census, and no order


def test_a_node_that_is_started_again_under_its_id_is_asked_again_in_the_same_round(monkeypatch):
    monkeypatch.setattr("holdfast.integrations.flower.server.attendance._AGAIN", 0.0)
    held = []
    grid = ByteGrid({10: honest(0), 11: hostile(lambda reply, message: held.append(message))})
    exchange = exchange_of(grid, timeout=30.0)
    usual = grid.get_nodes

    def restarted():
        if held:
            grid.since[11], grid.nodes[11] = "after the restart", honest(1)
        return usual()

    grid.get_nodes = restarted
    assert sorted(ask(exchange)) == [0, 1]
    assert [fault.kind for fault in exchange.faults] == ["returned"]


def test_a_node_that_comes_and_goes_all_the_time_gets_few_orders(monkeypatch):
    """Each return was a census and an order, with the model in it, every second."""
    clock = Clock()
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange.time", clock)
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._LONGEST", 1.0)
    grid = ByteGrid({10: honest(0), 11: hostile(lambda reply, message: None)})
    exchange = exchange_of(grid, timeout=60.0)
    usual = grid.get_nodes

    def flicker():
        grid.since[11] = f"a restart at {clock.now}"
        return usual()

    grid.get_nodes = flicker
    assert list(ask(exchange)) == [0]
    assert grid.count(11, "train") <= 1 + 60 // 5
    assert grid.count(11, "census") <= 2 + 60 // 5
