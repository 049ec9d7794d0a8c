"""Items of anybody's map-style torch Dataset: which part is the input, which the label, and how inputs make a batch.

Items are ``(x, y, ...)`` tuples or dicts. Inputs may be tensors, arrays, numbers, PIL images or dicts of these; those
that differ in length need the collate function that a DataLoader would need for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.data.inputs import InputBatch
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError

#: Makes a batch of a list of inputs.
Collate = Callable[[list[Any]], InputBatch]

_LABELS = ("label", "labels", "y", "target", "targets", "class")
_LOOKED_AT = 5
_SUPPORTED = "what is supported is one class per example, a whole number or a word"


@dataclass(frozen=True)
class DatasetInputs:
    """The inputs of a Dataset, read one by one when they are needed.

    Attributes:
        dataset: has ``__len__`` and ``__getitem__``.
        collate: makes a batch of a list of inputs; by default they are stacked.
        leave_out: entries of dict items that are no inputs, besides the label.
    """

    dataset: Any
    collate: Collate | None = None
    leave_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    def gather(self, positions: Tensor) -> InputBatch:
        """The inputs at `positions` as one batch."""
        wanted = positions.tolist()
        if not wanted:
            batch = self.gather(torch.zeros(1, dtype=torch.int64))
            return {name: part[:0] for name, part in batch.items()} if isinstance(batch, dict) else batch[:0]
        return self.batch([self.input_of(self.dataset[position], position) for position in wanted], wanted)

    def input_of(self, item: Any, position: int) -> Any:
        """The input in an item; words beside it, such as a file's name, are for a collate function only."""
        return input_of(item, position, self.leave_out, words=self.collate is not None)

    def batch(self, items: list[Any], positions: Sequence[int]) -> InputBatch:
        """The inputs of the items at `positions` as one batch."""
        if self.collate is not None:
            return self.collate(items)
        inputs = [as_input(item, position) for item, position in zip(items, positions, strict=True)]
        if isinstance(inputs[0], dict):
            return {name: _stacked([item[name] for item in inputs], positions, name) for name in inputs[0]}
        return _stacked(inputs, positions)


def labels_of(inputs: DatasetInputs) -> list[int] | list[str]:
    """The label of every item; each is read once, and its input looked at, so that no batch fails in training.

    Raises:
        DataError: if a label is no class, an input is not finite, or inputs differ in shape and there is no function
            that makes a batch of them; it names the item.
    """
    labels: list[int | str] = []
    shapes: dict[tuple[Any, ...], int] = {}
    for position in range(len(inputs)):
        item = _read(inputs.dataset, position)
        labels.append(_label(item, position))
        shapes.setdefault(_shape(inputs.input_of(item, position), position), position)
        if inputs.collate is None and len(shapes) > 1:
            raise _differing(shapes)
    if len({isinstance(label, str) for label in labels}) > 1:
        raise DataError("some labels of the data set are words and some are numbers; give all of one kind")
    return labels  # type: ignore[return-value]


def look_at_some(inputs: DatasetInputs) -> None:
    """Make a batch of a few items, spread over the data set: where labels are given, nobody else looks before training.

    Raises:
        DataError: if an item can't be read or is no input, or a batch can't be made of them; it names the item.
    """
    positions = sorted({step * max(len(inputs) - 1, 0) // (_LOOKED_AT - 1) for step in range(_LOOKED_AT)})
    items = []
    for position in positions if len(inputs) else ():
        item = _read(inputs.dataset, position)
        items.append(inputs.input_of(item, position))
        _shape(items[-1], position)
    if items:
        inputs.batch(items, positions)


def _read(dataset: Any, position: int) -> Any:
    """An item of somebody's Dataset; whatever their code raises, the item is named and the error kept as the cause."""
    try:
        return dataset[position]
    except Exception as error:
        reason = shortened(f"{type(error).__name__}: {error}", 120)
        raise DataError(f"item {position} of the {len(dataset):,} of the data set can't be read ({reason})") from error


def values_of(dataset: Any, entry: str) -> list[int] | list[str]:
    """An entry of every item of a Dataset of dicts, such as an attribute.

    Raises:
        DataError: if an item has no such entry, or it is no category; it names the item.
    """
    values = []
    for position in range(len(dataset)):
        item = _read(dataset, position)
        if not isinstance(item, Mapping) or entry not in item:
            raise DataError(f"item {position} of the data set has no entry {entry!r}; give dicts that have it")
        values.append(_category(item[entry], position, entry))
    return values  # type: ignore[return-value]


def input_of(item: Any, position: int, leave_out: Sequence[str] = (), *, words: bool = True) -> Any:
    """The input in an item, as it is; without the words beside other entries of a dict, unless they are wanted.

    Raises:
        DataError: if the item is neither a tuple nor a dict.
    """
    if isinstance(item, Mapping):
        inputs = {name: value for name, value in item.items() if name not in _LABELS and name not in leave_out}
        if not words:
            described = words_beside(inputs)
            inputs = {name: value for name, value in inputs.items() if name not in described}
        if not inputs:
            raise DataError(f"item {position} of the data set has no input besides {some(item)}; add one")
        return next(iter(inputs.values())) if len(inputs) == 1 else inputs
    if isinstance(item, (tuple, list)) and item:
        return item[0]
    raise DataError(
        f"item {position} of the data set is a {type(item).__name__}; give tuples (x, y) or dicts with an entry 'label'"
    )


def words_beside(entries: Mapping[str, Any]) -> list[str]:
    """Entries that are words where others are not: they describe an input (its file, whose it is) and are none."""
    words = [name for name, value in entries.items() if isinstance(value, str)]
    return words if len(words) < len(entries) else []


def as_input(value: Any, position: int) -> Any:
    """An input as a tensor, or as a dict of tensors.

    Raises:
        DataError: if it is something else.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        return {str(name): as_input(part, position) for name, part in value.items()}
    if hasattr(value, "convert") and hasattr(value, "mode"):  # a PIL image, told without importing PIL
        from holdfast.data.readers.decoding import to_rgb  # noqa: PLC0415

        pixels = np.asarray(to_rgb(value, f"item {position} of the data set"))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
    if isinstance(value, str):
        raise DataError(
            f"the input of item {position} of the data set is a text; give token ids as tensors, or a table with a "
            "text column"
        )
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the input of item {position} of the data set is a {type(value).__name__}, which isn't a tensor, array, "
            "image or dict of these; give collate= to make batches of it"
        ) from error


def _label(item: Any, position: int) -> int | str:
    named = {}
    if isinstance(item, Mapping):
        named = {name: item[name] for name in _LABELS if name in item}
    elif isinstance(item, (tuple, list)) and len(item) > 1:
        named = {"y": item[1]}
    if not named:
        raise DataError(
            f"item {position} of the data set has no label; give tuples (x, y), an entry 'label', or labels=..."
        )
    return _category(next(iter(named.values())), position, "label")


def _category(label: Any, position: int, entry: str) -> int | str:
    """A class or an attribute value as a number or a word."""
    if isinstance(label, (str, bool, int)):
        return int(label) if isinstance(label, bool) else label
    array = np.asarray(label.detach().cpu() if isinstance(label, Tensor) else label)
    if array.ndim and array.size != 1:
        raise DataError(
            f"the {entry} of item {position} of the data set has shape {array.shape} (several labels, or one per token "
            f"or pixel), which is not supported; {_SUPPORTED}"
        )
    number = array.reshape(-1)[0] if array.dtype.kind in "biuf" else None
    if number is None or not np.isfinite(number) or number != np.round(number):
        raise DataError(
            f"the {entry} of item {position} of the data set is {str(label)[:60]}, which isn't a class: regression is "
            f"not supported; {_SUPPORTED}"
        )
    return int(number)


def _stacked(parts: Sequence[Any], positions: Sequence[int], name: str = "") -> Tensor:
    shapes = {tuple(part.shape): position for part, position in zip(parts, positions, strict=True)}
    if len(shapes) > 1:
        raise _differing(shapes, name)
    return torch.stack(list(parts))


def _differing(shapes: Mapping[Any, int], name: str = "") -> DataError:
    (first, one), (second, other), *_ = shapes.items()
    what = f"the inputs {name!r}" if name else "the inputs"
    return DataError(
        f"{what} of items {one} and {other} have shapes {first} and {second} and can't be stacked; give collate=, "
        "which makes a batch of a list of inputs (by padding, say)"
    )


def _shape(value: Any, position: int) -> tuple[Any, ...]:
    """What must be the same for inputs to be stacked, as far as it can be told without converting them.

    Raises:
        DataError: if a number is NaN or infinite.
    """
    if isinstance(value, Mapping):
        return tuple((str(name), _shape(part, position)) for name, part in sorted(value.items(), key=str))
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(value)
    if isinstance(value, Tensor):
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise DataError(f"the input of item {position} of the data set has NaN or infinite numbers; correct it")
        return tuple(value.shape)
    return tuple(value.size) if hasattr(value, "convert") and hasattr(value, "mode") else ()
