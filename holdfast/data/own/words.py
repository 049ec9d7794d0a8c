"""Sentences of bounded length: a million broken rows are named by a few of them and a number."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

_LONGEST = 60


def some(items: Iterable[object], most: int = 5, count: int | None = None) -> str:
    """The first items and how many more there are: ``a, b, c and 37 more``.

    Args:
        items: what is listed; only the first are looked at where `count` is given.
        most: how many are named.
        count: how many there are; counted by default.

    Example:
        >>> some(range(100), 3)
        '0, 1, 2 and 97 more'
    """
    if count is None:
        items = list(items)
        count = len(items)
    shown = [shortened(str(item)) for item in islice(items, most)]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def shortened(text: str, most: int = _LONGEST) -> str:
    """A value as a message shows it: on one line, without what a terminal would obey, cut where it is long."""
    plain = "".join(character if character.isprintable() else " " for character in text[: most + 1])
    return plain if len(text) <= most else plain[: most - 3] + "..."
