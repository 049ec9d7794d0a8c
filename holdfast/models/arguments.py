"""What a model's factory is called with: what the user gave, and what the data say about parameters with usual names.

A factory is a class or a function. Arguments are given by keyword, as plain values. Its other parameters are looked at
by name: ``n_classes``, ``num_classes`` and the like get the number of classes, ``input_shape`` the shape of an input,
``in_channels`` its channels, ``in_features`` its size. A parameter that is a dataclass is made from a mapping, and its
fields are looked at in the same way. Nothing is guessed by position.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from math import prod
from typing import Any

from holdfast.errors import ConfigError, nearest

_Shape = tuple[int, ...]


def _classes(shape: _Shape, n_classes: int) -> Any:
    return n_classes


def _whole_shape(shape: _Shape, n_classes: int) -> Any:
    return shape


def _size(shape: _Shape, n_classes: int) -> Any:
    return prod(shape)


def _channels(shape: _Shape, n_classes: int) -> Any:
    return shape[0] if len(shape) == 3 else None


def _side(shape: _Shape, n_classes: int) -> Any:
    if len(shape) != 3:
        return None
    return shape[1] if shape[1] == shape[2] else shape[1:]


#: Parameters that say one thing wherever they occur: what they get, whether or not they have a default.
_CLEAR = {
    **dict.fromkeys(("n_classes", "num_classes", "classes", "nclasses", "n_labels", "num_labels"), _classes),
    **dict.fromkeys(("input_shape", "in_shape"), _whole_shape),
    **dict.fromkeys(("in_channels", "in_chans", "input_channels"), _channels),
    **dict.fromkeys(("in_features", "input_dim", "in_dim", "n_features", "num_features"), _size),
}
#: Parameters that may mean something else: what they get where they must be given and were not.
_LIKELY = {
    **dict.fromkeys(
        ("out_features", "output_dim", "out_dim", "output_size", "outputs", "n_outputs", "num_outputs"), _classes
    ),
    **dict.fromkeys(("channels", "n_channels", "num_channels"), _channels),
    **dict.fromkeys(("image_size", "img_size"), _side),
    **dict.fromkeys(("input_size", "inputs", "n_inputs", "num_inputs"), _size),
}


@dataclass(frozen=True)
class Call:
    """A call that is ready to be made.

    Attributes:
        function: what is called.
        positional: arguments of parameters that have no keyword.
        named: arguments by keyword.
        filled: those that came from the data and not from the user.
    """

    function: Callable[..., Any]
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    filled: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        """Make the call."""
        return self.function(*self.positional, **self.named)


def call_of(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    shape: _Shape,
    n_classes: int,
    *,
    title: str,
    where: str = "",
) -> Call:
    """How to call a factory.

    Args:
        function: a class, a function, or anything that can be called.
        given: arguments of the user's, plain values by name.
        shape: of one input, without the batch dimension.
        n_classes: how many logits.
        title: what messages call it.
        where: the parameter whose fields these are, with a dot at its end.

    Returns:
        The call; nothing was called yet, but dataclasses among the arguments were made.

    Raises:
        ConfigError: if there is no such parameter, or one must be given; the message says how.
    """
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some classes written in C tell nothing
        return Call(function, named=dict(given))
    hints = _hints(function)
    by_name = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        refuse_unknown(given, by_name, title)
    values: dict[str, Any] = dict(given)
    filled: dict[str, Any] = {}
    for name, parameter in by_name.items():
        nested = hints.get(name)
        required = parameter.default is inspect.Parameter.empty
        if isinstance(nested, type) and is_dataclass(nested) and (name in given or required):
            fields = given.get(name, {})
            if isinstance(fields, Mapping):
                made = call_of(nested, fields, shape, n_classes, title=f"{title}'s {name}", where=f"{where}{name}.")
                values[name] = made()
                filled |= made.filled
        elif name not in given:
            known = _CLEAR.get(name) or (_LIKELY.get(name) if required else None)
            value = None if known is None else known(shape, n_classes)
            if value is not None:
                values[name] = value
                filled[f"{where}{name}"] = value
            elif required:
                raise ConfigError(
                    f"{title} must be told {name!r}; add it with --model-args {_example(where, name)} (what is called "
                    "input_shape, n_features or n_classes is taken from the data)"
                )
    first = [name for name, p in by_name.items() if p.kind is p.POSITIONAL_ONLY and name in values]
    return Call(function, tuple(values.pop(name) for name in first), values, filled)


def refuse_unknown(given: Mapping[str, Any], known: Mapping[str, Any], title: str) -> None:
    """Refuse arguments that a factory has no parameter for.

    Raises:
        ConfigError: if there is one; the message offers the nearest, or says that there are none.
    """
    for name in given:
        if name not in known:
            others = nearest(name, known) if known else "; it takes no arguments, so leave --model-args out"
            raise ConfigError(f"{title} has no argument {name!r}{others}")


def written(arguments: Mapping[str, Any]) -> str:
    """Arguments as a call has them, for messages: ``hidden=64, depth=2``."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "no arguments"


def _example(where: str, name: str) -> str:
    parts = where.split(".")[:-1]
    if not parts:
        return f"{name}=VALUE"
    inner = f"{name}: VALUE"
    for part in reversed(parts[1:]):
        inner = f"{part}: {{{inner}}}"
    return f"'{parts[0]}={{{inner}}}'"


def _hints(function: Any) -> dict[str, Any]:
    """The types that parameters are annotated with, as far as they can be told."""
    target = function.__init__ if inspect.isclass(function) and not is_dataclass(function) else function
    try:
        return typing.get_type_hints(target)
    except Exception:  # annotations are the user's code and may name what isn't imported
        return {}
