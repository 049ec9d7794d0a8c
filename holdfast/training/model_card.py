"""What somebody must know to use a trained model: which inputs it takes, what its outputs mean, where it comes from.

It stands in the header of ``weights.safetensors`` and goes along wherever the model is exported to. Inputs are
described as the training data had them: a model does not say by itself whether it wants pixels from 0 to 1 or from 0
to 255, and a wrong guess costs accuracy without an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch

import holdfast
from holdfast.data.inputs import InputBatch
from holdfast.errors import CheckpointError

#: How outputs are read: a logit per class; or one number, the second of two classes where it is positive.
OutputTask = Literal["classes", "margin"]

#: Inputs whose range is looked at.
LOOKED_AT = 64

_KEY = "holdfast"


@dataclass(frozen=True)
class InputFacts:
    """One tensor that a model takes.

    Attributes:
        name: the keyword that it is passed by; empty for the only argument of a model.
        dtype: such as ``float32``.
        shape: of one example.
        low: the smallest value seen in training data, None where none was looked at.
        high: the largest.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        shape = ", ".join(["batch", *map(str, self.shape)])
        seen = "" if self.low is None else f" with values from {self.low:.4g} to {self.high:.4g} in training"
        return f"{f'{self.name}: ' if self.name else ''}{self.dtype} of shape ({shape}){seen}"


@dataclass(frozen=True)
class ModelCard:
    """What is known of a trained model.

    Attributes:
        inputs: what it takes, in the order of its arguments.
        classes: a name per class; empty where classes are numbers only.
        task: how its outputs are read.
        made: where it comes from, plain values by name: data, method, epoch.
    """

    inputs: tuple[InputFacts, ...]
    classes: tuple[str, ...] = ()
    task: OutputTask = "classes"
    made: Mapping[str, Any] | None = None

    def describe_inputs(self) -> str:
        """The inputs in a clause."""
        return "; ".join(map(str, self.inputs))

    def to_header(self) -> dict[str, str]:
        """The card as the header of a safetensors file holds it."""
        stored = {"version": holdfast.__version__, **asdict(self)}
        usage = (
            f"state dict of a model trained by holdfast; takes {self.describe_inputs()}, as the data set gives them "
            "(nothing else is applied before the model); model.json beside this file says which model"
        )
        return {_KEY: json.dumps(stored), "usage": usage}

    @classmethod
    def from_header(cls, header: Mapping[str, str]) -> ModelCard | None:
        """The card in a header; None where there is none.

        Raises:
            CheckpointError: if it is garbled.
        """
        if _KEY not in header:
            return None
        try:
            stored = json.loads(header[_KEY])
            inputs = tuple(_facts_of(facts) for facts in stored["inputs"])
            if stored["task"] not in get_args(OutputTask):
                raise ValueError(f"its task is {stored['task']!r}")
            made = None if stored["made"] is None else dict(stored["made"])
            return cls(inputs, tuple(map(str, stored["classes"])), stored["task"], made)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CheckpointError(f"what the weights say of their model is garbled ({error}); train again") from error


def _facts_of(stored: Mapping[str, Any]) -> InputFacts:
    if not isinstance(getattr(torch, stored["dtype"], None), torch.dtype):
        raise ValueError(f"there is no dtype {stored['dtype']!r}")
    low, high = (None if stored[key] is None else float(stored[key]) for key in ("low", "high"))
    return InputFacts(str(stored["name"]), stored["dtype"], tuple(int(size) for size in stored["shape"]), low, high)


def input_facts(batch: InputBatch) -> tuple[InputFacts, ...]:
    """What a batch of inputs is like, tensor by tensor; the range where there are examples in it."""
    named: Mapping[str, torch.Tensor] = batch if isinstance(batch, dict) else {"": batch}
    return tuple(_facts(name, tensor) for name, tensor in named.items())


def _facts(name: str, tensor: torch.Tensor) -> InputFacts:
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape[1:])
    if not tensor.numel() or tensor.is_complex():
        return InputFacts(name, dtype, shape)
    return InputFacts(name, dtype, shape, float(tensor.min()), float(tensor.max()))


def differences(expected: Sequence[InputFacts], given: Sequence[InputFacts]) -> str | None:
    """How inputs differ from those that a model takes, in a clause; None where the model can take them."""
    wanted, offered = {facts.name: facts for facts in expected}, {facts.name: facts for facts in given}
    if wanted.keys() != offered.keys():
        return f"the inputs are {_names(given)} and the model takes {_names(expected)}"
    for name, facts in wanted.items():
        other = offered[name]
        if facts.shape != other.shape:
            return f"the inputs {name + ' ' if name else ''}have shape {other.shape} and the model takes {facts.shape}"
        if torch.empty(0, dtype=getattr(torch, facts.dtype)).is_floating_point() != (
            torch.empty(0, dtype=getattr(torch, other.dtype)).is_floating_point()
        ):
            return f"the inputs {name + ' ' if name else ''}are {other.dtype} and the model takes {facts.dtype}"
    return None


def _names(inputs: Sequence[InputFacts]) -> str:
    return ", ".join(facts.name or "one tensor" for facts in inputs)
