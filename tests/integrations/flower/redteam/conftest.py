"""Servers of these tests don't sleep between questions."""

from tests.integrations.flower.impatience import impatient

__all__ = ["impatient"]
