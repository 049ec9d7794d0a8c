"""What a policy's fields may hold: tyro checks the command line, this checks Python."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from holdfast.errors import ConfigError, nearest
from holdfast.training.policy import Policy


def check_kinds(policy: Policy) -> None:
    """Refuse words that an option doesn't know, and what is no number, no whole one or no truth value where it must be.

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
    if kind is float and (not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value)):
        raise ConfigError(f"{option} of {policy} is {value!r}; give a number")
    if kind is bool and not isinstance(value, bool):
        raise ConfigError(f"{option} of {policy} is {value!r}; give True or False")
