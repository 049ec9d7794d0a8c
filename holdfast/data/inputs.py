"""Where the inputs of a set live: in one tensor, or behind a function that reads one when it is needed.

Both are gathered by position, a batch at a time. In-memory data never goes through a DataLoader: one indexed read of a
contiguous tensor is several times faster than collating examples one by one (`benchmarks/fit_overhead.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from holdfast.errors import DataError

#: A batch of inputs as a model takes it: one tensor, or named tensors (token ids and attention masks).
InputBatch = Tensor | dict[str, Tensor]


class Inputs(Protocol):
    """Anything that has a length and gives the inputs at some positions as one batch."""

    def __len__(self) -> int: ...

    def gather(self, positions: Tensor) -> InputBatch:
        """The inputs at `positions`, an int64 vector, in that order; an empty batch of the right shape for none."""
        ...


@dataclass(frozen=True)
class TensorInputs:
    """Inputs held in memory: one tensor, or a dict of tensors, whose first dimension counts examples.

    Attributes:
        values: the stored form, for instance uint8 pixels.
        transform: what turns a gathered batch into what the model takes, for instance scaling to [0, 1].
    """

    values: InputBatch
    transform: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        lengths = {len(part) for part in self._parts()}
        if len(lengths) != 1:
            raise DataError(f"the input tensors have different lengths {sorted(lengths)}; give one row per example")

    def __len__(self) -> int:
        return len(self._parts()[0])

    def gather(self, positions: Tensor) -> InputBatch:
        """The inputs at `positions`, transformed."""
        if isinstance(self.values, dict):
            return {name: _rows(part, positions) for name, part in self.values.items()}
        batch = _rows(self.values, positions)
        return batch if self.transform is None else self.transform(batch)

    def _parts(self) -> list[Tensor]:
        return list(self.values.values()) if isinstance(self.values, dict) else [self.values]


def _rows(values: Tensor, positions: Tensor) -> Tensor:
    """Copies whole rows, where ``values[positions]`` copies element by element: 9 times faster on uint8 images."""
    return values.index_select(0, positions if values.is_cpu else positions.to(values.device))


@dataclass(frozen=True)
class LazyInputs:
    """Inputs read one by one when they are needed, by threads: decoding images releases the interpreter lock.

    Attributes:
        read: gives the input at a position.
        length: how many there are.
        workers: how many threads read at once; 0 reads in the calling thread.
        shape: of one input, where it is the same for all and known without reading one.
    """

    read: Callable[[int], Tensor]
    length: int
    workers: int = 0
    shape: tuple[int, ...] | None = None
    _pools: dict[int, ThreadPoolExecutor] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.length

    def gather(self, positions: Tensor) -> Tensor:
        """The inputs at `positions`, stacked."""
        wanted = positions.tolist()
        if not wanted:
            return self.read(0)[None][:0] if self.shape is None else torch.empty(0, *self.shape)
        if self.workers == 0:
            return torch.stack([self.read(i) for i in wanted])
        process = os.getpid()  # a forked process inherits the pool without its threads
        if process not in self._pools:
            self._pools[process] = ThreadPoolExecutor(self.workers, thread_name_prefix="holdfast-inputs")
        return torch.stack(list(self._pools[process].map(self.read, wanted)))


@dataclass(frozen=True)
class SubsetInputs:
    """Some of another set's inputs, without copying them.

    Attributes:
        parent: the inputs that are looked into.
        positions: which of them, int64.
    """

    parent: Inputs
    positions: Tensor

    def __len__(self) -> int:
        return len(self.positions)

    def gather(self, positions: Tensor) -> InputBatch:
        """The parent's inputs at the positions that `positions` stand for."""
        return self.parent.gather(self.positions[positions])
