"""What a joined node tells and takes."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
from flwr.app import Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from holdfast.errors import FederationError
from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.nodes import processes
from holdfast.integrations.flower.nodes.node import Node
from holdfast.integrations.flower.nodes.processes import Waits, answer_task
from holdfast.integrations.flower.nodes.scribe import harmless, write_escaped
from holdfast.integrations.flower.operation.access import Access
from tests.federated.toy import toy_clients


class Silent:
    """A client of the Runtime API, or a heart, that nobody hears."""

    def __init__(self, *given) -> None:
        pass

    start = stop = close = lambda self: None


@pytest.fixture
def pushed(monkeypatch):
    """What a task's process sends, without a SuperNode."""
    sent: list = []
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    order = Message(RecordDict(), 1, "train")
    order.metadata.__dict__["_message_id"] = "0" * 64
    run_clientapp = __import__("flwr.supernode.runtime.run_clientapp", fromlist=["x"])
    monkeypatch.setattr(processes, "_task_client", Silent)
    monkeypatch.setattr("flwr.supercore.heartbeat.HeartbeatSender", Silent)
    monkeypatch.setattr("flwr.supercore.heartbeat.make_task_heartbeat_fn_http", Silent)
    monkeypatch.setattr(run_clientapp, "pull_task_input", lambda client: (order, None, None, None))
    monkeypatch.setattr(run_clientapp, "push_message", lambda client, reply, context: sent.append(reply))
    monkeypatch.setattr(run_clientapp, "push_task_output", lambda *given: sent.append(given[2:]))
    return sent


def raises(error):
    def answer(message, context):
        raise error

    return answer


def test_an_error_that_is_not_ours_tells_the_server_its_kind_alone(pushed, capsys):
    answer_task(Access("127.0.0.1:1"), "token", raises(ValueError("patient 4711 in /data/wards.csv")))
    assert pushed[0].error.reason == "ValueError"
    assert "4711" not in str(pushed[1])
    assert "4711" in capsys.readouterr().err, "the node's own log has all of it"


def test_an_error_of_ours_is_told_as_its_sentence(pushed):
    answer_task(Access("127.0.0.1:1"), "token", raises(FederationError("client 3 is past round 2")))
    assert pushed[0].error.reason == "client 3 is past round 2"


def test_a_nodes_log_moves_no_cursor(tmp_path):
    evil = "\x1b[2J\x1b[H\x1b]0;title\x07 \x9b31m \r all well\u202e\n"
    read, write = os.pipe()
    os.write(write, f"\x1b[92mINFO\x1b[0m: {evil}".encode() + b"\xff\xfe\n" + b"a" * 5000 + b"\n")
    os.close(write)
    write_escaped(read, tmp_path / "log")
    lines = (tmp_path / "log").read_text().split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines[0].startswith("INFO: \\x1b[2J")
    assert max(map(len, lines)) <= 2000
    assert harmless("plain text") == "plain text"


def test_a_supernode_whose_executor_has_ended_ends_too():
    work, done = os.pipe(), os.pipe()
    os.close(done[1])
    with pytest.raises(RuntimeError, match="executor"):
        Waits(work[1], done[0]).sleep(0.5)


class OneModel:
    """As much of a blueprint as a census needs."""

    options: ClassVar = {}


def test_a_node_keeps_the_ids_it_was_given_first(tmp_path):
    """Personal models are kept by id: a server that changes ids would mix those of different clients."""
    toy_clients((9, 23, 17)).save(tmp_path / "data")
    node = Node(OneModel(), {"state": str(tmp_path / "state"), "data": str(tmp_path / "data")}, "0" * 32)

    def census(*ids):
        return node.answer(Request("census", "0" * 32, total=9, clients=ids), RecordDict())["holdfast"]

    assert "(3) than this node was admitted with (2)" in census(4, 5)["refusal"]
    assert census(4, 5, 6)["clients"] == [4, 5, 6]
    assert "other ids" in census(3, 4, 5)["refusal"]
    assert census(4, 5, 6)["clients"] == [4, 5, 6]
