"""What commands share that read their options off the library: configuration files, words, free places."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.common.model_options import write_arguments
from holdfast.errors import ConfigError, nearest
from holdfast.files import read_mapping

#: Options whose mapping is the arguments of something and not a section: ``model_args: {hidden: 64}``.
ASSIGNMENTS = ("model_args",)
#: Options that say where and how to run, not what: they are no part of a run's configuration.
NOT_CONFIGURATION = ("out", "track", "strict", "resume", "app", "config", "print_config")


def free_place(parent: str, stem: str) -> Path:
    """A folder below `parent` named after what is made, numbered where that name is taken."""
    place, number = Path(parent) / stem, 1
    while place.exists():
        number += 1
        place = Path(parent) / f"{stem}-{number}"
    return place


def with_config(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any], str | None]:
    """The words as typed behind those of the configuration file that they name, its settings, and its name."""
    typed = list(arguments)
    file = value_of("config", typed)
    settings = read_mapping(Path(file)) if file is not None else {}
    return [*as_arguments(settings), *typed], settings, file


def value_of(option: str, arguments: Sequence[str]) -> str | None:
    """The last value given to ``--option``, before the real parsing knows which options there are.

    Words are joined by hyphens on the command line and by underscores in configuration files.
    """
    value, wanted = None, f"--{option}".replace("_", "-")
    for place, word in enumerate(arguments):
        named, given, inline = word.partition("=")
        if named.replace("_", "-") != wanted:
            continue
        if given:
            value = inline
        elif place + 1 < len(arguments):
            value = arguments[place + 1]
    return None if value == str(None) else value


def as_arguments(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A configuration as the options that say the same."""
    words: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and not prefix and key in ASSIGNMENTS:
            words += [f"--{key}", *write_arguments(value)]
        elif isinstance(value, Mapping):
            words += as_arguments(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            words.append(f"--{prefix}{'' if value else 'no-'}{key}")
        elif isinstance(value, list):
            words += [f"--{prefix}{key}", *(str(item) for item in value)]
        else:
            words += [f"--{prefix}{key}", str(value)]
    return words


def check_keys(
    settings: Mapping[str, Any], known: Collection[str], sections: Mapping[str, Collection[str]], file: str | None
) -> None:
    """Refuse keys of a configuration file that nothing would read.

    Args:
        settings: what the file says.
        known: keys at its top.
        sections: keys below each of its sections.
        file: its name.

    Raises:
        ConfigError: if there is another key; the message offers the nearest.
    """
    for key, value in settings.items():
        if key in sections and isinstance(value, Mapping):
            for option in value:
                if option not in sections[key]:
                    raise ConfigError(f"{file} has an unknown key {key}.{option}{nearest(option, sections[key])}")
        elif key not in known:
            raise ConfigError(f"{file} has an unknown key {key!r}{nearest(str(key), {*known, *sections})}")


def refuse_odd_numbers(value: Any, option: str = "") -> None:
    """Refuse NaN and infinity, which pass many a comparison, and whole numbers beyond what arrays hold.

    Args:
        value: what an option was set to; of a dataclass or a list each part is looked at.
        option: its name.

    Raises:
        ConfigError: if it is one of these.
    """
    if is_dataclass(value):
        for f in fields(value):
            refuse_odd_numbers(getattr(value, f.name, None), f.name.rstrip("_"))
    elif isinstance(value, (list, tuple)):
        for item in value:
            refuse_odd_numbers(item, option)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{option} is {value}; give a finite number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{option} has more than 64 bits; give a smaller number")


def configurable(*parts: type) -> set[str]:
    """Names of the fields of dataclasses that belong into a configuration file."""
    return {f.name for part in parts for f in fields(part)} - set(NOT_CONFIGURATION)


def refuse_changes(stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to continue a run with options other than those it was started with."""
    changed = [key for key, value in given.items() if value != stored.get(key)]
    if changed:
        raise ConfigError(
            f"a run is continued with the options it was started with, and {', '.join(changed)} would change; "
            "leave that out, or start a new run"
        )
