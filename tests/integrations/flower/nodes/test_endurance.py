"""A SuperLink that says 500 for a while ends neither a SuperNode nor what tells that it is alive."""

import itertools
import threading
from types import SimpleNamespace

import httpx
import pytest
from flwr.supernode import fleet_http_connection

from holdfast.integrations.flower.nodes.endurance import LastingHeartbeats, endure, patient_invoker


def answered(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1")
    return httpx.HTTPStatusError("said so", request=request, response=httpx.Response(code, request=request))


TROUBLES = {
    "500": answered(500),
    "404": answered(404),
    "not recognized": RuntimeError("Heartbeat failed unexpectedly"),
    "nobody": httpx.ConnectError("refused"),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_heartbeats_go_on_whatever_becomes_of_one(trouble):
    beats, heard = iter([trouble, trouble]), threading.Event()

    def beat() -> bool:
        for error in beats:
            raise error
        heard.set()
        return True

    sender = LastingHeartbeats(beat)
    sender._retry_invoker.wait_function = lambda seconds: None
    sender.start()
    assert heard.wait(30.0)
    assert sender.is_running
    sender.stop()


@pytest.mark.parametrize("code", [500, 502, 503])
def test_a_call_of_a_node_is_tried_again_while_the_server_is_unwell(code):
    answers = iter([answered(code)] * 5)

    def call() -> str:
        for error in answers:
            raise error
        return "done"

    invoker = patient_invoker()
    invoker.wait_function = lambda seconds: None
    assert invoker.invoke(call) == "done"


def test_a_call_that_is_refused_is_not_tried_again():
    def call() -> None:
        raise answered(404)

    with pytest.raises(httpx.HTTPStatusError):
        patient_invoker().invoke(call)


def test_supernodes_are_made_to_endure(monkeypatch):
    for name in ("HeartbeatSender", "make_simple_http_retry_invoker"):
        monkeypatch.setattr(fleet_http_connection, name, getattr(fleet_http_connection, name))
    endure()
    assert fleet_http_connection.HeartbeatSender is LastingHeartbeats
    assert fleet_http_connection.make_simple_http_retry_invoker is patient_invoker


def test_a_call_that_the_server_can_never_answer_does_not_hold_a_node_for_ever(monkeypatch):
    clock = itertools.count(0.0, 20.0)
    time = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("holdfast.integrations.flower.nodes.endurance.time", time)
    tries = []

    def call() -> None:
        tries.append(1)
        raise answered(500)

    invoker = patient_invoker()
    invoker.wait_function = lambda seconds: None
    with pytest.raises(httpx.HTTPStatusError):
        invoker.invoke(call)
    assert 5 < len(tries) < 20
