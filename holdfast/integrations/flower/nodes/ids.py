"""Ids of clients as an administrator writes them, without torch: commands that only keep the roster need none."""

from __future__ import annotations

import re

from holdfast.errors import ConfigError

_MOST_CLIENTS = 10**6
#: An id, or the first and the last of several; no more digits than there are ids.
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def parse_ids(text: str) -> list[int]:
    """Ids as an administrator writes them, ``"0-3,7"``.

    Raises:
        ConfigError: if they are not written so, or one is named twice.
    """
    ids: list[int] = []
    for piece in text.split(","):
        found = _RANGE.fullmatch(piece.strip())
        if found is None:
            raise ConfigError(f'the clients of a node are {text!r}; write ids and ranges, such as clients="0-3,7"')
        first, last = int(found[1]), int(found[2] or found[1])
        if last >= _MOST_CLIENTS:
            raise ConfigError(f"the clients of a node are {text!r}; ids go from 0 to below {_MOST_CLIENTS:,}")
        ids += range(first, last + 1)
    if len(set(ids)) < len(ids) or not ids:
        raise ConfigError(f"the clients of a node are {text!r}; name each client once")
    return sorted(ids)


def share_of(text: str, total: int) -> list[int]:
    """The clients of one of several nodes that share `total` clients evenly: ``"0/8"`` is the first of eight."""
    place, _, nodes = text.partition("/")
    if not place.isdigit() or not nodes.isdigit() or not int(place) < int(nodes):
        raise ConfigError(f'the share of a node is {text!r}; write share="0/8" for the first of eight')
    return list(range(int(place) * total // int(nodes), (int(place) + 1) * total // int(nodes)))
