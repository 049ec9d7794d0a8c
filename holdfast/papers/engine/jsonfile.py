"""Small JSON files that are written whole and read with suspicion."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import ConfigError, DataError
from holdfast.files import write_atomically

Built = TypeVar("Built")


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write plain values as a whole or not at all; folders are made as needed.

    Raises:
        ConfigError: if the folder can't be made.
        CheckpointError: if the file can't be written; what was there before is untouched.
    """
    content = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {file.parent} can't be made ({error.strerror}); choose another place") from error
    write_atomically(file, (content + "\n").encode())


def read_json(file: Path, kind: str, build: Callable[[Mapping[str, Any]], Built]) -> Built:
    """Read a file into what `build` makes of its content.

    Args:
        file: the file.
        kind: what it should be, for the message.
        build: may complain by ValueError, LookupError, TypeError or AttributeError.

    Returns:
        What `build` gave.

    Raises:
        DataError: if the file can't be read or `build` complained.
    """
    try:
        return build(json.loads(file.read_text()))
    except OSError as error:
        raise DataError(f"the {kind} {file} can't be read ({error.strerror})") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is not a {kind} ({error}); make it anew") from error


def expect_keys(stored: Mapping[str, Any], keys: str, optional: str = "") -> Mapping[str, Any]:
    """`stored`, if it has exactly these keys, given as words; else a ValueError that names the culprit."""
    wanted, given = set(keys.split()), set(stored)
    for key in sorted(wanted - given):
        raise ValueError(f"{key!r} is missing")
    for key in sorted(given - wanted - set(optional.split())):
        raise ValueError(f"{key!r} is unknown")
    return stored


def number(value: Any) -> float:
    """`value`, if it is a finite number; else a ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} isn't a finite number")
    return float(value)


def number_or_none(value: Any) -> float | None:
    """`value`, if it is a finite number or null; else a ValueError."""
    return None if value is None else number(value)


def text(value: Any) -> str:
    """`value`, if it is a text; else a TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} isn't text")
    return value
