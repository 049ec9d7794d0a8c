"""What was read to say how to train, for the reading that follows: a command reads a table, or calls a function, once.

A command reads data twice: for the model and the settings that suit it, before options are parsed, and for training.
One thing is held between the two, and only while nothing has changed at its place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_held: dict[str, tuple[Any, Any]] = {}


def hand_on(place: str, thing: Any) -> Any:
    """Hold what was read at a place, instead of anything held before; it is returned."""
    _held.clear()
    _held[place] = (_state(place), thing)
    return thing


def take(place: str) -> Any:
    """What was read at a place, once; None where nothing is held or the place has changed."""
    state, thing = _held.pop(place, (None, None))
    return thing if state == _state(place) else None


def _state(place: str) -> Any:
    """When files at a place were written, and their sizes; nothing of what is no file."""
    path = Path(place).expanduser()
    try:
        files = sorted(os.scandir(path), key=lambda entry: entry.name) if path.is_dir() else [path]
        return [(file.name, (written := file.stat()).st_mtime_ns, written.st_size) for file in files]
    except (OSError, ValueError):
        return []
