"""A SuperNode outlasts its SuperLink's bad moments: one that has just started, or whose database is locked, says 500.

Flower's SuperNode waits while nobody answers, but the first 500 ends it, or the thread that says that it is alive; then
the SuperLink counts it as gone, though it goes on asking for work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import httpx
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.retry import RetryInvoker, RetryState, make_simple_http_retry_invoker

from holdfast.integrations.flower.messages.wire import sentence

_log = logging.getLogger("flwr")
#: Seconds for which a SuperLink may be unwell.
_PATIENCE = 300.0


def endure() -> None:
    """Have the SuperNode of this process wait, and go on, where Flower's would end."""
    from flwr.supernode import fleet_http_connection  # noqa: PLC0415

    names: dict[str, Any] = vars(fleet_http_connection)
    names["HeartbeatSender"] = LastingHeartbeats
    names["make_simple_http_retry_invoker"] = patient_invoker


class LastingHeartbeats(HeartbeatSender):
    """Heartbeats that no answer ends: whatever goes wrong with one, the next is sent.

    Args:
        heartbeat_fn: sends one, and says whether it was heard.
    """

    def __init__(self, heartbeat_fn: Callable[[], bool]) -> None:
        super().__init__(lambda: _heard(heartbeat_fn))


def _heard(beat: Callable[[], bool]) -> bool:
    try:
        return beat()
    except Exception as error:  # of the network, of HTTP, of protobuf: the thread has nobody to tell
        _log.warning("a heartbeat failed: %s", sentence(error, 100))
        return False


def patient_invoker() -> RetryInvoker:
    """Flower's way of trying again, which gives up at a 500; this one does when there was nothing else for minutes.

    A reply that the SuperLink can't take, whatever its state, must not occupy the node for ever.
    """
    invoker = make_simple_http_retry_invoker()
    final, succeeded = invoker.should_giveup, invoker.on_success
    assert final is not None and succeeded is not None
    unwell: list[float] = []

    def gives_up(error: Exception) -> bool:
        if not is_passing(error):
            return final(error)
        unwell.append(time.monotonic())
        return unwell[-1] - unwell[0] > _PATIENCE

    def is_well(state: RetryState) -> None:
        unwell.clear()
        succeeded(state)

    invoker.should_giveup, invoker.on_success = gives_up, is_well
    return invoker


def is_passing(error: Exception) -> bool:
    """Whether a SuperLink that answers so is expected to answer otherwise soon."""
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (500, 502, 503, 504)
