"""Settings of the documents' experiments that are nowhere printed in their tables: pinned, whatever the library does.

A cell's settings name what its table varies. The rest of `Training`, of a method's options or of a data set's is
written down in ``pins.json``, class by class, as it was when the experiment was declared. So a better default of the
library reaches its users and changes no published number. Cells build what they need by `pinned`; a field that is
neither given nor pinned is an error, so a new field of a pinned class asks for its pin: the value that changes nothing.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import ConfigError

Built = TypeVar("Built")

PINS = Path(__file__).parents[1] / "pins.json"


def pinned(build: Callable[..., Built], /, **given: Any) -> Built:
    """``build(**given)``, with the rest of its options from the pins and none from today's defaults."""
    return build(**options(build, given))


def options(build: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What `build` is called with: what is given, on top of what is pinned for it.

    Raises:
        ConfigError: if `build` has an option with a default that is neither given nor pinned.
    """
    name = name_of(build)
    pins = read_pins().get(name, {})
    for option in defaults(build):
        if option not in given and option not in pins:
            raise ConfigError(
                f"{name} has an option {option!r} that the documents' experiments neither give nor pin; "
                f"pin in {PINS.name} the value that leaves their numbers as they are"
            )
    return {**pins, **given}


def name_of(build: Callable[..., Any]) -> str:
    """What something is pinned under: its room and its own name, as in ``training.Training``."""
    return f"{build.__module__.split('.')[1]}.{build.__name__}"


def defaults(build: Callable[..., Any]) -> dict[str, Any]:
    """The options of a class or function that have a plain default, with it; a factory's default is its product.

    Options that aren't plain values, such as another object, are left out: whoever needs them gives them.
    """
    made = {}
    factories = {
        field.name: field.default_factory
        for field in (dataclasses.fields(build) if dataclasses.is_dataclass(build) else ())
        if field.default_factory is not dataclasses.MISSING
    }
    for option, parameter in inspect.signature(build).parameters.items():
        if parameter.default is inspect.Parameter.empty or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        value = factories[option]() if option in factories else parameter.default
        if _is_plain(value):
            made[option] = list(value) if isinstance(value, tuple) else value
    return made


@cache
def read_pins() -> Mapping[str, Mapping[str, Any]]:
    """The pins, by name of the class and option; lists stand for tuples."""
    stored = json.loads(PINS.read_text())
    return {
        name: {option: tuple(value) if isinstance(value, list) else value for option, value in pins.items()}
        for name, pins in stored.items()
    }


def pin(builds: list[Callable[..., Any]]) -> None:
    """Add pins for what has none yet, from today's defaults; what is pinned stays as it is."""
    stored = json.loads(PINS.read_text()) if PINS.exists() else {}
    for build in builds:
        stored[name_of(build)] = {**defaults(build), **stored.get(name_of(build), {})}
    PINS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    read_pins.cache_clear()


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))
