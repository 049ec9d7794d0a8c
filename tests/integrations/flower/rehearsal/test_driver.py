"""Calls on the Grid are repeated while the SuperLink is away, and no longer than is sensible."""

import contextlib
from types import SimpleNamespace

import httpx
import pytest

from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.rehearsal import driver
from holdfast.integrations.flower.rehearsal.deployment import START_PATIENCE
from holdfast.integrations.flower.rehearsal.project import app_files


class Calls:
    """A call that fails some times before it succeeds."""

    def __init__(self, trouble: int | type[httpx.TransportError], times: float) -> None:
        self.trouble, self.times, self.made = trouble, times, 0

    def __call__(self) -> str:
        self.made += 1
        if self.made > self.times:
            return "an answer"
        if isinstance(self.trouble, int):
            httpx.Response(self.trouble, request=httpx.Request("POST", "http://superlink")).raise_for_status()
        raise self.trouble("the SuperLink is away")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(driver, "_RETRY_PAUSE", 0.001)


@pytest.mark.parametrize("trouble", [httpx.ConnectError, httpx.ReadError, httpx.ReadTimeout, 500, 502, 503, 504])
def test_a_call_is_repeated_while_the_superlink_is_away_or_its_database_is_locked(trouble):
    call = Calls(trouble, times=3)
    assert driver._retrying().invoke(call) == "an answer"
    assert call.made == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 412, 413])
def test_a_refusal_is_final(status):
    call = Calls(status, times=1)
    with pytest.raises(httpx.HTTPStatusError, match=str(status)):
        driver._retrying().invoke(call)
    assert call.made == 1


@pytest.mark.parametrize("trouble", [httpx.ConnectError, 500])
def test_trouble_that_does_not_end_is_reported_as_it_is(trouble, monkeypatch):
    monkeypatch.setattr(driver, "_RETRY_PATIENCE", 0.05)
    call = Calls(trouble, times=float("inf"))
    with pytest.raises(httpx.HTTPError, match=r"500|away"):
        driver._retrying().invoke(call)
    assert call.made > 1


def test_a_call_is_repeated_for_longer_than_a_superlink_may_take_to_start():
    assert driver._retrying().max_time > START_PATIENCE


@pytest.mark.parametrize("status", [500, 503])
def test_a_run_is_started_on_a_superlink_that_is_unwell_at_first(status, monkeypatch):
    """One that has just been started again said 500, and ended the federation."""
    start, acquire = Calls(status, times=3), Calls(status, times=3)
    started = SimpleNamespace(HasField=lambda name: True, run_id=7)
    handed = SimpleNamespace(HasField=lambda name: True, task=SimpleNamespace(run_id=7), token="it")

    class Client:
        def StartRun(self, request):  # noqa: N802
            return start() and started

        def AcquireTask(self, request):  # noqa: N802
            return acquire() and handed

        def close(self) -> None:
            pass

    access = Access("127.0.0.1:9")
    monkeypatch.setattr(Access, "control", lambda self: contextlib.nullcontext(Client()))
    monkeypatch.setattr(Access, "runtime", lambda self: Client())
    assert driver._task_of(access, driver._start_run(access, app_files({}))) == "it"
    assert (start.made, acquire.made) == (4, 4)


def test_a_superlink_that_is_not_there_is_not_waited_for():
    call = Calls(httpx.ConnectError, times=1)
    with pytest.raises(httpx.ConnectError):
        driver._started().invoke(call)
    assert call.made == 1
