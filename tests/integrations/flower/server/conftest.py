"""Servers of these tests don't sleep between questions, and some have a clock of their own."""

import pytest

from tests.integrations.flower.impatience import impatient
from tests.integrations.flower.server.peers import Clock

__all__ = ["clock", "impatient"]


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange.time", clock)
    return clock
