"""The data of many clients: their examples one after another, and where each client's begin.

A client is a slice, so a federation of a hundred thousand small clients is three tensors per part, a cohort's examples
are gathered in one indexing, and worker processes share them without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.errors import DataError

#: ``classes``: cross-entropy over outputs. ``margin``: labels 0 and 1, one output, the hinge loss of a linear SVM.
Task = Literal["classes", "margin"]


@dataclass(frozen=True, eq=False)
class ClientPart:
    """One part (training, validation, test) of all clients' data.

    Attributes:
        inputs: client after client, shape (n, ...), any dtype; may be memory-mapped.
        labels: int64 of shape (n,), from 0.
        offsets: int64 of shape (clients + 1,); client k owns the rows from ``offsets[k]`` up to ``offsets[k + 1]``.
    """

    inputs: Tensor
    labels: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if len(self.labels) != n:
            raise DataError(f"there are {n} inputs and {len(self.labels)} labels; give one label per input")
        if self.offsets[0] != 0 or self.offsets[-1] != n or bool((self.offsets.diff() < 0).any()):
            raise DataError(f"offsets must rise from 0 to the number of examples, {n}, client after client")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> Tensor:
        """How many examples each client has, int64 of shape (clients,)."""
        return self.offsets.diff()

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of one client, as views."""
        rows = slice(int(self.offsets[client]), int(self.offsets[client + 1]))
        return self.inputs[rows], self.labels[rows]

    def owners(self) -> Tensor:
        """The client of each example, int64 of shape (n,)."""
        return torch.repeat_interleave(torch.arange(len(self)), self.counts)


@dataclass(frozen=True, eq=False)
class Clients:
    """What a federation learns from.

    Attributes:
        train: what clients train on.
        validation: what a client may choose by, for example its lambda; may be empty for some.
        test: what is reported; never read before.
        classes: number of classes.
        task: how outputs are scored.
        names: a name per client (writer, user, vehicle), where there is one.
    """

    train: ClientPart
    validation: ClientPart
    test: ClientPart
    classes: int
    task: Task = "classes"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(self.train), len(self.validation), len(self.test)}
        if len(sizes) > 1:
            raise DataError(f"the parts have {sorted(sizes)} clients; give every part the same clients")
        if self.names and len(self.names) != len(self):
            raise DataError(f"there are {len(self.names)} names for {len(self)} clients")

    def __len__(self) -> int:
        return len(self.train)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.inputs.shape[1:])
