"""Where a model's numbers are in a client's row: what trains, then running statistics, each by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from holdfast.errors import ConfigError


@dataclass(frozen=True, eq=False)
class RowLayout:
    """What a row is made of.

    Attributes:
        names: of the parameters that train, then of the running statistics, as in the module's state.
        shapes: of each.
        parameters: how many of them are parameters.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    parameters: int

    @cached_property
    def sizes(self) -> list[int]:
        """How many numbers each has."""
        return [shape.numel() for shape in self.shapes]

    @cached_property
    def trainable(self) -> int:
        """How many numbers train; the running statistics are behind them."""
        return sum(self.sizes[: self.parameters])

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """Where each is in a row."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        return {name: slice(end - size, end) for name, size, end in zip(self.names, self.sizes, ends, strict=True)}

    def split(self, row: Tensor) -> list[Tensor]:
        """Views of a row, shape (P,), one for each name and of its shape."""
        return [part.view(shape) for part, shape in zip(torch.split(row, self.sizes), self.shapes, strict=True)]

    def split_rows(self, rows: Tensor) -> list[Tensor]:
        """Views of rows (clients, P), one for each name, shape (clients, *its shape)."""
        parts = torch.split(rows, self.sizes, dim=1)
        return [part.view(len(rows), *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def statistics(self, rows: Tensor) -> list[Tensor]:
        """Copies of the running statistics in rows (clients, P), shape (clients, channels) each."""
        parts = torch.split(rows[:, self.trainable :], self.sizes[self.parameters :], dim=1)
        return [part.clone(memory_format=torch.contiguous_format) for part in parts]


def layout_of(module: nn.Module) -> RowLayout:
    """The layout of a module that is in training mode.

    Frozen parameters (``requires_grad=False``) are the same for all clients and in no row. So are the statistics of
    norms that the module itself keeps out of training.

    Raises:
        ConfigError: if nothing trains, or it can't be laid out as numbers of one kind.
    """
    name_of = type(module).__name__
    parameters = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for _, parameter in parameters):
        raise ConfigError(f"the model {name_of} has lazy layers without a shape; run one batch through it first")
    if not parameters:
        frozen = "; all of them are frozen" if any(True for _ in module.parameters()) else ""
        raise ConfigError(f"the model {name_of} has no parameters that train, so there is nothing to federate{frozen}")
    kinds = {str(parameter.dtype) for _, parameter in parameters}
    if len(kinds) > 1:
        raise ConfigError(f"the model {name_of} trains {' and '.join(sorted(kinds))}; convert it to one of them")
    if parameters[0][1].is_complex():
        raise ConfigError(
            f"the model {name_of} trains complex numbers; keep real and imaginary parts as two parameters, and join "
            "them by torch.complex"
        )
    statistics = [(f"{name}.{kind}", getattr(norm, kind)) for name, norm in tracking(module) for kind in STATISTICS]
    values = [*parameters, *statistics]
    return RowLayout(
        tuple(name for name, _ in values), tuple(value.shape for _, value in values), parameters=len(parameters)
    )


STATISTICS = ("running_mean", "running_var")


def tracking(module: nn.Module) -> list[tuple[str, _NormBase]]:
    """Norms whose running statistics a training pass moves, by name.

    Raises:
        ConfigError: if one weighs all batches alike.
    """
    norms = [
        (name, norm)
        for name, norm in module.named_modules()
        if isinstance(norm, _NormBase) and norm.training and norm.running_mean is not None
    ]
    for name, norm in norms:
        if norm.momentum is None:
            raise ConfigError(
                f"the running statistics of {name!r} weigh all batches alike (momentum=None), which can't be averaged "
                "over clients; give it a momentum"
            )
    return norms
