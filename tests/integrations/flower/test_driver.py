"""Calls on the Grid are repeated while the SuperLink is away, and no longer than is sensible."""

from holdfast.integrations.flower import driver
from holdfast.integrations.flower.deployment import START_PATIENCE


def test_a_call_is_repeated_for_longer_than_a_superlink_may_take_to_start():
    assert driver._retrying().max_time > START_PATIENCE
