"""A trained model as a function of tensors that torch.export can trace, and batches to trace and to check it with.

The number of examples in a batch stays open. Models that take named inputs (token ids, a mask) keep the names, and an
output object of transformers is reduced to its logits, so that a program that loads the result needs no transformers.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from holdfast.data.inputs import InputBatch
from holdfast.errors import ConfigError
from holdfast.models.heads import logits_of
from holdfast.streams import torch_stream
from holdfast.training.model_card import InputFacts, ModelCard
from holdfast.training.trained import TrainedModel

#: What the only input of a model is called where it has no name.
INPUTS = "inputs"

_TRACED = 3  # examples; torch treats 0 and 1 as special


def random_batch(card: ModelCard, size: int, seed: int = 0, *, shorter: bool = False) -> InputBatch:
    """A batch like the model's training data: of its shapes, dtypes and range.

    Args:
        card: what the model takes.
        size: examples.
        seed: decides the values.
        shorter: make dimensions that differ from batch to batch half as long as they may be.
    """
    generator = torch_stream(seed, "export")
    tensors = {facts.name: _random(_shortened(facts) if shorter else facts, size, generator) for facts in card.inputs}
    return tensors[""] if tensors.keys() == {""} else tensors


def traced(trained: TrainedModel) -> ExportedProgram:
    """The model as a program with any number of examples in a batch, and of tokens where that differs.

    Raises:
        ConfigError: if the model can't be traced, for instance because its Python code looks at values.
    """
    batch = random_batch(trained.card, _TRACED)
    # Inputs that differ in the same dimension differ together: token ids and their mask.
    shared = {
        place: Dim(f"size_{place}", min=2, max=facts.shape[place])
        for facts in trained.card.inputs
        for place in facts.open
    }
    dims = {
        facts.name: {0: Dim("batch"), **{place + 1: shared[place] for place in facts.open}}
        for facts in trained.card.inputs
    }
    try:
        if isinstance(batch, dict):
            shapes = {name: dims[name] for name in batch}
            return torch.export.export(_named(trained.model, list(batch)), (), batch, dynamic_shapes=shapes)
        return torch.export.export(_Logits(trained.model).eval(), (batch,), dynamic_shapes=(dims[""],))
    except Exception as error:  # the model's own code runs here, and torch has many errors of its own
        raise ConfigError(
            f"the model {trained.spec.name} can't be exported as a program: torch.export says {_first_line(error)}; "
            "--to safetensors hands on its weights"
        ) from error


def model_outputs(model: nn.Module, batch: InputBatch) -> Tensor:
    """The logits of the model itself."""
    with torch.no_grad():
        return logits_of(model(**batch) if isinstance(batch, dict) else model(batch))


def input_names(card: ModelCard) -> list[str]:
    """What the inputs are called, in order."""
    return [facts.name or INPUTS for facts in card.inputs]


class _Logits(nn.Module):
    """A model of one input that returns its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        return logits_of(self.model(inputs))


def _named(model: nn.Module, names: Sequence[str]) -> nn.Module:
    """A model of named inputs that returns its logits; torch.export reads the names off the signature."""

    def forward(self: Any, **inputs: Tensor) -> Tensor:
        return logits_of(self.model(**inputs))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper: nn.Module = type("NamedLogits", (nn.Module,), {"forward": forward})()
    wrapper.model = model
    return wrapper.eval()


def _shortened(facts: InputFacts) -> InputFacts:
    sizes = (max(size // 2, 2) if place in facts.open else size for place, size in enumerate(facts.shape))
    return replace(facts, shape=tuple(sizes))


def _random(facts: InputFacts, size: int, generator: torch.Generator) -> Tensor:
    dtype, shape = getattr(torch, facts.dtype), (size, *facts.shape)
    low, high = (0.0, 1.0) if facts.low is None or facts.high is None else (facts.low, facts.high)
    if dtype.is_floating_point:
        return (low + (high - low) * torch.rand(shape, generator=generator)).to(dtype)
    values = torch.randint(int(low), int(high) + 1, shape, generator=generator)
    if high <= 1 and values.ndim > 1:
        values[:, :1] = 1  # a mask hides all but something
    return values.to(dtype)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def as_named(batch: InputBatch) -> Mapping[str, Tensor]:
    """The tensors of a batch by the names that `input_names` gives."""
    return batch if isinstance(batch, dict) else {INPUTS: batch}
