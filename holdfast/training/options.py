"""What a policy's fields may hold: tyro checks the command line, this checks Python."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from holdfast.errors import ConfigError, nearest
from holdfast.training.policy import Policy


def check_kinds(policy: Policy) -> None:
    """Refuse words that an option doesn't know, and numbers that aren't whole where only whole ones make sense.

    Raises:
        ConfigError: it names the option, and the nearest word.
    """
    hints = get_type_hints(type(policy))
    for field in fields(policy):  # type: ignore[arg-type]
        value = getattr(policy, field.name)
        kinds = get_args(hints[field.name]) if type(None) in get_args(hints[field.name]) else (hints[field.name],)
        if value is None and type(None) in kinds:
            continue
        for kind in kinds:
            _check(policy.name, field.name, value, kind)


def _check(policy: str, option: str, value: Any, kind: Any) -> None:
    words = get_args(kind) if get_origin(kind) is Literal else ()
    if words and value not in words:
        raise ConfigError(f"{option} of {policy} is {value!r}{nearest(str(value), map(str, words))}")
    if kind is int and (not isinstance(value, int) or isinstance(value, bool)):
        raise ConfigError(f"{option} of {policy} is {value!r}; give a whole number")
