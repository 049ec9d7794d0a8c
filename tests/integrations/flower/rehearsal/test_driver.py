"""Calls on the Grid are repeated while the SuperLink is away, and no longer than is sensible."""

import httpx
import pytest

from holdfast.integrations.flower.rehearsal import driver
from holdfast.integrations.flower.rehearsal.deployment import START_PATIENCE


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
