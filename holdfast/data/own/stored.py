"""Plain values of a stored file as the types that they must have; others raise before anything is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} stands where a text must be")
    return value


def number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{str(value)[:40]!r} stands where a number must be")
    return float(value)


def count(most: int) -> Callable[[Any], int]:
    """A whole number from 1 to `most`."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise TypeError(f"{str(value)[:40]!r} stands where a whole number from 1 to {most:,} must be")
        return value

    return read


def optional(read: Callable[[Any], Value], value: Any) -> Value | None:
    """What `read` makes of a value, or None of None."""
    return None if value is None else read(value)


def each(read: Callable[[Any], Value], values: Any) -> tuple[Value, ...]:
    """What `read` makes of each value of a list."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{str(values)[:40]!r} stands where a list must be")
    return tuple(read(value) for value in values)
