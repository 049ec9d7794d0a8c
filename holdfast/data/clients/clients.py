"""The data of many clients: their examples one after another, and where each client's begin.

A client is a slice, so a federation of a hundred thousand small clients is three tensors per part, a cohort's examples
are gathered in one indexing, and worker processes share them without a copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from holdfast.data.clients.files import read_folder, write_folder
from holdfast.errors import DataError

if TYPE_CHECKING:
    from holdfast.data.own.schema import Schema

#: ``classes``: cross-entropy over outputs. ``margin``: labels 0 and 1, one output, the hinge loss of a linear SVM.
#: ``regression``: targets are numbers, and the loss is the squared error.
Task = Literal["classes", "margin", "regression"]

_PARTS = ("train", "validation", "test")
_ELSEWHERE = "elsewhere"
_TENSORS = ("inputs", "labels", "offsets")
_GROUPS = "groups"
_FINGERPRINT_ROWS = 64


@dataclass(frozen=True, eq=False)
class ClientPart:
    """One part (training, validation, test) of all clients' data.

    Attributes:
        inputs: client after client, shape (n, ...), any dtype; may be memory-mapped.
        labels: int64 of shape (n,), from 0. Of a regression, and where the loss is the user's own, any targets of shape
            (n, ...).
        offsets: int64 of shape (clients + 1,); client k owns the rows from ``offsets[k]`` up to ``offsets[k + 1]``.
        groups: int64 of shape (n,), where something besides the label is known of each example.
    """

    inputs: Tensor
    labels: Tensor
    offsets: Tensor
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if len(self.labels) != n:
            raise DataError(f"there are {n} inputs and {len(self.labels)} labels; give one label per input")
        if self.groups is not None and len(self.groups) != n:
            raise DataError(f"there are {n} inputs and {len(self.groups)} groups; give one group per input")
        if (
            not len(self.offsets)
            or self.offsets[0] != 0
            or self.offsets[-1] != n
            or bool((self.offsets.diff() < 0).any())
        ):
            raise DataError(f"offsets must rise from 0 to the number of examples, {n}, client after client")

    @classmethod
    def of_counts(cls, inputs: Tensor, labels: Tensor, counts: Tensor) -> ClientPart:
        """A part from rows that are sorted by client and the number of rows of each client, int64 (clients,)."""
        return cls(inputs, labels, torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]))

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

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels of rows, int64 of any shape: shapes (*rows, ...) and (*rows, ...).

        The same as indexing; `index_select` is several times faster on rows of images.
        """
        flat = rows.flatten().to(self.inputs.device)
        inputs = self.inputs.index_select(0, flat).view(*rows.shape, *self.inputs.shape[1:])
        return inputs, self.labels.index_select(0, flat).view(*rows.shape, *self.labels.shape[1:])

    def owners(self) -> Tensor:
        """The client of each example, int64 of shape (n,)."""
        return torch.repeat_interleave(torch.arange(len(self)), self.counts)


@dataclass(frozen=True)
class Counts:
    """How a number is spread over clients."""

    total: int
    mean: float
    median: float
    smallest: int
    largest: int

    @classmethod
    def of(cls, values: Tensor) -> Counts:
        """Of one whole number per client, shape (clients,)."""
        numbers = values.numpy()
        middle = float(np.median(numbers))
        return cls(int(numbers.sum()), float(numbers.mean()), middle, int(numbers.min()), int(numbers.max()))


@dataclass(frozen=True)
class Summary:
    """What one wants to know of a federation's data before training.

    Attributes:
        clients: how many there are.
        train: training examples per client.
        validation: validation examples per client.
        test: test examples per client.
        classes_per_client: different labels in each client's training data.
    """

    clients: int
    train: Counts
    validation: Counts
    test: Counts
    classes_per_client: Counts


@dataclass(frozen=True, eq=False)
class Clients:
    """What a federation learns from.

    Attributes:
        train: what clients train on.
        validation: what a client may choose by, for example its lambda; may be empty for some.
        test: what is reported; never read before.
        elsewhere: test examples of an environment that the client does not train in, where there is one.
        notes: what was guessed or changed when the data was read, a line each.
        schema: how to read other data in the same way, where the data is a user's own.
        classes: number of classes; of a regression, how many numbers a target has.
        task: how outputs are scored.
        names: a name per client (writer, user, vehicle), where there is one.
    """

    train: ClientPart
    validation: ClientPart
    test: ClientPart
    classes: int
    task: Task = "classes"
    names: tuple[str, ...] = ()
    elsewhere: ClientPart | None = None
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    schema: Schema | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        sizes = {len(part) for part in self.parts.values()}
        if len(sizes) > 1:
            raise DataError(f"the parts have {sorted(sizes)} clients; give every part the same clients")
        if self.names and len(self.names) != len(self):
            raise DataError(f"there are {len(self.names)} names for {len(self)} clients")

    @classmethod
    def of(cls, data: Mapping[str, Any], *, seed: int = 0, class_names: tuple[str, ...] = ()) -> Clients:
        """Clients from their arrays by name, each split 72/8/20 for training, validation and test.

        Args:
            data: for each client's name ``(inputs, labels)``, or `Examples`; labels are numbers from 0, or words.
            seed: decides the split.
            class_names: all classes, in order; those that occur by default.

        Raises:
            DataError: if a client has fewer than two examples, or clients' inputs differ in shape.

        Example:
            >>> wards = {f"ward-{k}": (torch.randn(20, 3), ["ill", "well"] * 10) for k in range(4)}
            >>> Clients.of(wards).train.counts.tolist()
            [14, 14, 14, 14]
        """
        from holdfast.data.clients.own import clients_of_arrays  # noqa: PLC0415 - which makes these

        return clients_of_arrays(data, seed=seed, class_names=class_names)

    def __len__(self) -> int:
        return len(self.train)

    @property
    def parts(self) -> dict[str, ClientPart]:
        """The parts that there are, by name."""
        parts = {name: getattr(self, name) for name in (*_PARTS, _ELSEWHERE)}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def class_names(self) -> tuple[str, ...]:
        """A name per class, where the data has names."""
        return () if self.schema is None else self.schema.classes

    @property
    def group_names(self) -> tuple[str, ...]:
        """A name per group, where the data has names."""
        return () if self.schema is None else self.schema.all_group_names

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def outputs(self) -> int:
        """How many outputs a model needs."""
        return 1 if self.task == "margin" else self.classes

    def check(self) -> Clients:
        """These clients, if each has examples to train on and every label is a class, or a finite number.

        Raises:
            DataError: if not; it names the client.
        """
        empty = torch.nonzero(self.train.counts == 0).flatten()
        if len(empty):
            raise DataError(
                f"{self.called(int(empty[0]))} has no training examples, one of {len(empty)} such clients; use fewer "
                "clients or more data, or leave such clients out"
            )
        for name, part in self.parts.items():
            if self.task == "regression":
                self._check_targets(name, part)
                continue
            wrong = torch.nonzero((part.labels < 0) | (part.labels >= self.classes))[:, 0]
            if len(wrong):
                client = int(torch.searchsorted(part.offsets, wrong[:1], right=True)) - 1
                raise DataError(
                    f"{self.called(client)} has label {part.labels[wrong[0]].tolist()} in its {name} data; labels "
                    f"go from 0 to {self.classes - 1}"
                )
        return self

    def _check_targets(self, name: str, part: ClientPart) -> None:
        if not part.labels.is_floating_point():
            raise DataError(f"targets of the {name} data are {part.labels.dtype}; a regression needs floating point")
        numbers = part.labels[0].numel() if len(part.labels) else self.classes
        if numbers != self.classes:
            raise DataError(f"a target of the {name} data has {numbers} numbers and classes says {self.classes}")
        wrong = (
            torch.nonzero(~part.labels.flatten(1).isfinite().all(1))
            if part.labels.ndim > 1
            else torch.nonzero(~part.labels.isfinite())
        )
        if len(wrong):
            client = int(torch.searchsorted(part.offsets, wrong[0, :1], right=True)) - 1
            raise DataError(f"{self.called(client)} has a target in its {name} data that is not finite; leave it out")

    def called(self, client: int) -> str:
        """How messages call a client: its position, and its name where it has one."""
        return f"client {client}" + (f" ({self.names[client]})" if self.names else "")

    def summary(self) -> Summary:
        """Counts over clients."""
        return Summary(
            len(self),
            Counts.of(self.train.counts),
            Counts.of(self.validation.counts),
            Counts.of(self.test.counts),
            Counts.of(self.classes_seen()),
        )

    def classes_seen(self) -> Tensor:
        """How many classes each client has in training, int64 of shape (clients,); 0 where labels are no classes."""
        labels = self.train.labels
        if labels.ndim > 1 or labels.is_floating_point():
            return torch.zeros(len(self), dtype=torch.int64)
        pairs = torch.unique(self.train.owners() * self.classes + labels)
        return torch.bincount(pairs // self.classes, minlength=len(self))

    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that tell this partition of this data from another.

        They depend on task, sizes, labels, groups, shape and dtype of the inputs and on 64 rows of each part.
        """
        digest = hashlib.blake2b(repr((self.task, self.classes)).encode(), digest_size=8)
        for part in self.parts.values():
            step = max(1, len(part.labels) // _FINGERPRINT_ROWS)
            rows = part.inputs[::step].contiguous()
            digest.update(repr((tuple(part.inputs.shape), str(part.inputs.dtype))).encode())
            for tensor in (part.offsets, part.labels, rows, *([] if part.groups is None else [part.groups])):
                digest.update(np.ascontiguousarray(tensor.numpy()).tobytes())
        return digest.hexdigest()

    def save(self, folder: Path | str) -> None:
        """Write a folder from which `open` maps the clients without reading them.

        Args:
            folder: must not be there yet.

        Raises:
            DataError: if it is, or can't be written; nothing is left half written.
        """
        header: dict[str, Any] = {"classes": self.classes, "task": self.task, "names": list(self.names)}
        if self.schema is not None:
            header["schema"] = self.schema.to_json()
        tensors = {
            f"{name}-{what}": value
            for name, part in self.parts.items()
            for what in (*_TENSORS, _GROUPS)
            if (value := getattr(part, what)) is not None
        }
        write_folder(Path(folder), header, tensors)

    @classmethod
    def open(cls, folder: Path | str) -> Clients:
        """Map the clients that `save` wrote; inputs are read from disk when they are gathered.

        Raises:
            DataError: if the folder is damaged or something else.
        """
        header, tensors = read_folder(Path(folder))
        try:
            saved = [*_PARTS, *(name for name in (_ELSEWHERE,) if f"{name}-labels" in tensors)]
            train, validation, test, *elsewhere = (_read_part(tensors, name) for name in saved)
            classes, task, names = int(header["classes"]), header["task"], tuple(map(str, header["names"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder} lacks or garbles {error}; save the clients again") from error
        if task not in get_args(Task):
            raise DataError(f"{folder} has the task {task!r}; save the clients again")
        return cls(train, validation, test, classes, task, names, *elsewhere, schema=_read_schema(header))


def _read_schema(header: Mapping[str, Any]) -> Schema | None:
    from holdfast.data.own.schema import Schema  # noqa: PLC0415 - needs Arrow

    return None if header.get("schema") is None else Schema.from_json(header["schema"])


def _read_part(tensors: Mapping[str, Tensor], name: str) -> ClientPart:
    inputs, labels, offsets = (tensors[f"{name}-{what}"] for what in _TENSORS)
    return ClientPart(inputs, labels, offsets, tensors.get(f"{name}-{_GROUPS}"))
