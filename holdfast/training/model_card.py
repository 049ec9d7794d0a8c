"""What somebody must know to use a trained model: which inputs it takes, what its outputs mean, where it comes from.

It stands in the header of ``weights.safetensors`` and goes along wherever the model is exported to. Inputs are
described as the training data had them: a model does not say by itself whether it wants pixels from 0 to 1 or from 0
to 255, and a wrong guess costs accuracy without an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import torch

import holdfast
from holdfast.data.inputs import InputBatch, Inputs
from holdfast.errors import CheckpointError

#: How outputs are read: a logit per class; one number, the second of two classes where it is positive; or quantities.
OutputTask = Literal["classes", "margin", "regression"]

#: Inputs whose range is looked at.
LOOKED_AT = 64
_ALONE = 8  # inputs that are looked at one by one

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
        open: dimensions of one example that differ from batch to batch, such as the number of tokens; `shape` has the
            largest size of each.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    open: tuple[int, ...] = ()

    def __str__(self) -> str:
        sizes = [f"up to {size}" if place in self.open else str(size) for place, size in enumerate(self.shape)]
        shape = ", ".join(["batch", *sizes])
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

    @property
    def is_open(self) -> bool:
        """Whether some inputs differ in size from batch to batch."""
        return any(facts.open for facts in self.inputs)

    def closed(self) -> ModelCard:
        """The same with every input at its largest size."""
        return replace(self, inputs=tuple(replace(facts, open=()) for facts in self.inputs))

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
            raise CheckpointError(
                f"the description of the model in the weights is damaged ({error}); train again"
            ) from error


def _facts_of(stored: Mapping[str, Any]) -> InputFacts:
    if not isinstance(getattr(torch, stored["dtype"], None), torch.dtype):
        raise ValueError(f"there is no dtype {stored['dtype']!r}")
    low, high = (None if stored[key] is None else float(stored[key]) for key in ("low", "high"))
    shape, opened = (tuple(int(size) for size in stored.get(key, ())) for key in ("shape", "open"))
    return InputFacts(str(stored["name"]), stored["dtype"], shape, low, high, opened)


def input_facts(batch: InputBatch) -> tuple[InputFacts, ...]:
    """What a batch of inputs is like, tensor by tensor; the range where there are examples in it."""
    named: Mapping[str, torch.Tensor] = batch if isinstance(batch, dict) else {"": batch}
    return tuple(_facts(name, tensor) for name, tensor in named.items())


def facts_of_inputs(inputs: Inputs) -> tuple[InputFacts, ...]:
    """What the inputs of a set are like, and which of their dimensions differ from batch to batch.

    Args:
        inputs: looked at are some together, some alone, and none at all, which shows the largest size of texts.
    """
    count = min(len(inputs), LOOKED_AT)
    together = input_facts(inputs.gather(torch.arange(count)))
    alone = [inputs.gather(torch.tensor([place])) for place in range(min(count, _ALONE))]
    sizes = [input_facts(batch) for batch in (inputs.gather(torch.arange(0)), *alone)]
    return tuple(_with_open(facts, [other[place] for other in sizes]) for place, facts in enumerate(together))


def _with_open(facts: InputFacts, others: Sequence[InputFacts]) -> InputFacts:
    shapes = [facts.shape, *(other.shape for other in others if len(other.shape) == len(facts.shape))]
    largest = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    different = tuple(place for place, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1)
    return replace(facts, shape=largest, open=different)


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
        fixed = [place for place in range(len(facts.shape)) if place not in facts.open]
        if len(facts.shape) != len(other.shape) or any(facts.shape[place] != other.shape[place] for place in fixed):
            return f"the inputs {name + ' ' if name else ''}have shape {other.shape} and the model takes {facts.shape}"
        if torch.empty(0, dtype=getattr(torch, facts.dtype)).is_floating_point() != (
            torch.empty(0, dtype=getattr(torch, other.dtype)).is_floating_point()
        ):
            return f"the inputs {name + ' ' if name else ''}are {other.dtype} and the model takes {facts.dtype}"
    return None


def _names(inputs: Sequence[InputFacts]) -> str:
    return ", ".join(facts.name or "one tensor" for facts in inputs)
