"""The options that name a model, and the line that says what came of them.

``--model-args hidden=64 'widths=[32, 16]'`` are the arguments of the network's own; values are read as YAML reads them,
and a configuration file has them as a mapping. What `fit`, `federate` and audits build from these options is one
`ModelSpec`; before it is trained, two examples go through it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any

import tyro
import yaml

from holdfast.errors import ConfigError
from holdfast.models import MODELS

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from holdfast.data.inputs import InputBatch
    from holdfast.models.spec import ModelSpec

_SCIENTIFIC = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_DEEPEST = 8


def model_names() -> str:
    """How models are named, for the help of commands."""
    known = ", ".join(sorted(MODELS))
    return f"{known}; my_package.module:Net for code of your own; hf:NAME for one of transformers, timm:NAME of timm"


def read_arguments(words: Sequence[str]) -> dict[str, Any]:
    """Arguments of a network from words such as ``hidden=64``.

    Args:
        words: as typed.

    Returns:
        Plain values by name.

    Raises:
        ConfigError: if a word is no assignment, a name is given twice, or a value is not a plain one.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--model-args has {word!r}; give arguments as name=value, as in hidden=64")
        if name in arguments:
            raise ConfigError(f"--model-args has {name} twice; give it once")
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"--model-args has {name}={text[:80]}, whose value is not valid YAML; quote it, as in 'widths=[32, 16]'"
            ) from error
        arguments[name] = text if isinstance(value, date) else _plain(value, name)
    return arguments


def write_arguments(arguments: Mapping[str, Any]) -> list[str]:
    """The words that `read_arguments` reads the same values from."""
    return [f"{name}={_flow(value)}" for name, value in arguments.items()]


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.strip().removesuffix("...").strip()


def _plain(value: Any, name: str, depth: int = 0) -> Any:
    """A value without anything that JSON lacks; numbers that YAML takes for text, such as 1e-3, are numbers."""
    if depth > _DEEPEST:
        raise ConfigError(f"--model-args has {name} nested too deeply; give plain values, lists or mappings")
    if isinstance(value, str) and _SCIENTIFIC.fullmatch(value):
        return float(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, name, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, name, depth + 1) for item in value]
    if value is None or isinstance(value, (int, str)) or (isinstance(value, float) and not isnan(value)):
        return value
    raise ConfigError(f"--model-args has {name} with a {type(value).__name__}; give numbers, words, lists or mappings")


#: Arguments of a model's own, as an option of a command.
ModelArguments = Annotated[
    Mapping[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME=VALUE ...",
        instance_from_str=read_arguments,
        is_instance=lambda instance: isinstance(instance, Mapping),
        str_from_instance=write_arguments,
    ),
]


def show_model(
    spec: ModelSpec, model: nn.Module, inputs: InputBatch, console: Console, *, needed_by: str | None = None
) -> None:
    """Send two examples through a model, and say in a line what it is and how its head was found.

    Args:
        spec: what it was made from.
        model: on the CPU.
        inputs: two examples.
        console: where to say it.
        needed_by: the method that can't do without a head, if there is one.

    Raises:
        ConfigError: if the model doesn't take such inputs or doesn't give such outputs, or there is no head where one
            was named or is needed.
    """
    from rich.markup import escape

    from holdfast.models.first_pass import check_outputs, look_for_head

    check_outputs(model, inputs, spec.n_classes, spec.name)
    head = look_for_head(model, inputs, spec.head)
    if needed_by is not None and head.name is None:
        raise ConfigError(f"{needed_by} needs the last linear layer of the model: {head.how}")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    line = f"model: {written_spec(spec)}, {parameters:,} parameters, {head}"
    console.print(escape(line), highlight=False, soft_wrap=True)


def show_device(name: str, console: Console) -> None:
    """Find the device that was asked for, before anything is loaded, and say which where that isn't plain.

    Raises:
        ConfigError: if torch can't compute there.
    """
    from holdfast.models.devices import AUTO, best_device, find_device

    device, best = find_device(name), best_device()
    if name == AUTO:
        console.print(f"device: {device}", highlight=False)
    elif device.type == "cpu" and best.type != "cpu":
        console.print(f"device: cpu; --device auto would take {best}", highlight=False)


def written_spec(spec: ModelSpec) -> str:
    """A model's name with its arguments, first those that were given and then those that it got from the data."""
    from holdfast.models.arguments import written

    parts = [written(spec.args)] if spec.args else []
    parts += [f"from the data {written(spec.filled)}"] if spec.filled else []
    return f"{spec.name}({'; '.join(parts)})" if parts else spec.name
