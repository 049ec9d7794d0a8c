"""Rows of a table as vectors: numbers standardised, categories one-hot, missing values filled and marked.

What is needed to do the same to other rows (means, medians, the categories that occur) is measured on training rows
only, and is plain values that a run keeps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.own import stored
from holdfast.data.own.columns import is_text
from holdfast.data.own.source import Source
from holdfast.data.own.threads import in_threads
from holdfast.data.own.values import Coded, plain
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError, counted

_MOST_CATEGORIES = 64  # of one column; rarer ones share a place
_LOOKED_AT = 200
_WRITTEN = re.compile(r"[-+]?[$€£¥]?\s?\d[\d.,'\s]*[%$€£¥]?")
_MEDIAN_OF = 100_000
_BLOCK = 1 << 16  # rows that are scaled at a time: fewer, and threads wait for Python's lock more than they scale
_LARGEST = 1 << 24  # numbers of the encoded table that are held in memory; more are made when they are gathered


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    Attributes:
        column: its name.
        median: what a missing value is replaced by; of every k-th row where there are more than 100,000.
        mean: of the training rows, after that.
        std: likewise.
        marks_missing: whether a second feature says that the value was missing.
    """

    column: str
    median: float
    mean: float
    std: float
    marks_missing: bool

    @property
    def width(self) -> int:
        """Places in the vector."""
        return 1 + self.marks_missing

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Number:
        """What `asdict` gave."""
        median, mean, std = (stored.number(values[name]) for name in ("median", "mean", "std"))
        if std <= 0:
            raise ValueError(f"a spread of {std} can't scale numbers")
        return cls(stored.text(values["column"]), median, mean, std, values["marks_missing"] is True)


@dataclass(frozen=True)
class Category:
    """A column of categories.

    Attributes:
        column: its name.
        values: the categories with a place of their own; all others, and missing ones, share the last place.
    """

    column: str
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        """Places in the vector."""
        return len(self.values) + 1

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Category:
        """What `asdict` gave."""
        named = stored.each(stored.text, values["values"])
        if len(named) > _MOST_CATEGORIES:
            raise ValueError(f"a column of {len(named)} categories can't be of ours")
        return cls(stored.text(values["column"]), named)


@dataclass(frozen=True)
class TableEncoder:
    """How a row becomes a vector.

    Attributes:
        numbers: the columns of numbers, in the order of the vector.
        categories: the columns of categories, after them.
    """

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]

    @property
    def width(self) -> int:
        """Length of the vector."""
        return sum(part.width for part in self.parts)

    @property
    def parts(self) -> list[Number | Category]:
        """All columns, in the order of the vector."""
        return [*self.numbers, *self.categories]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TableEncoder:
        """What `to_json` gave."""
        return cls(
            stored.each(Number.from_json, values["numbers"]), stored.each(Category.from_json, values["categories"])
        )

    def encode(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Vectors of rows.

        Args:
            numbers: float32 of shape (n, number columns), standardised, NaN where missing.
            codes: int64 of shape (n, category columns), the place of each value in its column's categories.

        Returns:
            float32 of shape (n, width).
        """
        out = torch.zeros(len(numbers), self.width)
        if self.numbers:
            missing = numbers.isnan()
            filling = torch.tensor([(number.median - number.mean) / number.std for number in self.numbers])
            out[:, : len(self.numbers)] = torch.where(missing, filling, numbers)
            marked = [place for place, number in enumerate(self.numbers) if number.marks_missing]
            out[:, len(self.numbers) : len(self.numbers) + len(marked)] = missing[:, marked].float()
        start = sum(number.width for number in self.numbers)
        if self.categories:
            widths = torch.tensor([category.width for category in self.categories])
            places = codes + start + (widths.cumsum(0) - widths)
            out.scatter_(1, places, 1.0)
        return out


@dataclass(frozen=True)
class TableInputs:
    """Rows of a table that become vectors when they are gathered.

    Attributes:
        numbers: float32 of shape (n, number columns), standardised, NaN where missing.
        codes: integers of shape (n, category columns).
        encoder: makes the vectors.
    """

    numbers: Tensor
    codes: Tensor
    encoder: TableEncoder = field(repr=False)

    def __len__(self) -> int:
        return len(self.numbers)

    def gather(self, positions: Tensor) -> Tensor:
        """Vectors, float32 of shape (positions, width)."""
        return self.encoder.encode(
            self.numbers.index_select(0, positions), self.codes.index_select(0, positions).to(torch.int64)
        )

    @property
    def fits_memory(self) -> bool:
        """Whether all vectors together are small enough to be made at once."""
        return len(self) * self.encoder.width <= _LARGEST


def fit_encoder(source: Source, columns: Sequence[str], rows: NDArray[np.int64]) -> tuple[TableEncoder, list[str]]:
    """Measure how columns are encoded.

    Args:
        source: the table.
        columns: those that are inputs.
        rows: the training rows.

    Returns:
        The encoder, and what was left out or filled, a line each.

    Raises:
        DataError: if a number is infinite, or no column is left.
    """
    training = None if len(rows) == len(source) else rows
    measured = in_threads(lambda name: _measured(source, name, training), columns)
    numbers = [part for part in measured if isinstance(part, Number)]
    categories = [part for part in measured if isinstance(part, Category)]
    dropped: dict[str, list[str]] = {}
    for name, reason in zip(columns, measured, strict=True):
        if isinstance(reason, str):
            dropped.setdefault(reason, []).append(name)
    notes = [f"left out: {some(names)} ({reason})" for reason, names in dropped.items()]
    for name in columns:
        example = _number_in_words(source.table[name])
        if example:
            notes.append(
                f"warning: column {name!r} holds numbers written as words, such as {example!r}, and words are "
                "categories; write 1234.5 for 1,234.50, 5 for 5 % or $5"
            )
    filled = [number.column for number in numbers if number.marks_missing]
    if filled:
        notes.append(f"missing numbers filled with the median and marked: {some(filled)}")
    if not numbers and not categories:
        raise DataError(
            f"{source.place} has no column that could be an input: {'; '.join(notes) or 'none is left'}; name some "
            "with --features"
        )
    # Marks of missing numbers stand behind all numbers in the vector, see `encode`.
    return TableEncoder(tuple(numbers), tuple(categories)), notes


def table_inputs(source: Source, encoder: TableEncoder) -> TableInputs:
    """All rows of a table, ready to be gathered.

    Raises:
        DataError: if a column is missing or of another kind than when the encoder was measured.
    """
    for part in encoder.parts:
        if part.column not in source.columns:
            raise DataError(f"{source.place} has no column {part.column!r}, which the model was trained on; add it")
    columns = in_threads(source.numbers, [number.column for number in encoder.numbers])
    numbers = np.empty((len(source), len(columns)), np.float32)
    starts = range(0, len(source) if columns else 0, _BLOCK)
    in_threads(lambda start: _standardise(source, encoder, columns, numbers, start), starts)
    codes = np.empty((len(source), len(encoder.categories)), np.int16)
    for place, places in enumerate(in_threads(lambda category: _codes(source, category), encoder.categories)):
        codes[:, place] = places
    return TableInputs(torch.from_numpy(numbers), torch.from_numpy(codes), encoder)


def _standardise(
    source: Source, encoder: TableEncoder, columns: list[NDArray[np.float64]], out: NDArray[np.float32], start: int
) -> None:
    """Write a block of rows, scaled by column and stored by row, as batches are gathered.

    In float64 until then, since a date in seconds has ten digits.
    """
    rows = slice(start, start + _BLOCK)
    block = out[rows]
    scaled = np.empty(len(block))
    with np.errstate(over="ignore"):
        for place, (values, number) in enumerate(zip(columns, encoder.numbers, strict=True)):
            np.subtract(values[rows], number.mean, out=scaled)
            np.divide(scaled, number.std, out=scaled)
            block[:, place] = scaled
    if np.isinf(block).any():
        row, place = (int(at[0]) for at in np.nonzero(np.isinf(block)))
        number = encoder.numbers[place]
        raise DataError(
            f"{source.place} has {columns[place][start + row]:g} in column {number.column!r} of row "
            f"{start + row + 1}, which is infinite or too far from the training mean of {number.mean:g}; correct it"
        )


def _number_in_words(column: pa.ChunkedArray) -> str:
    """A value of a column whose texts are numbers that only people can read; nothing where it has others."""
    first = column.slice(0, _LOOKED_AT)
    words = [str(word).strip() for word in plain(first).to_pylist() if word] if is_text(column) else []
    written = [word for word in words if not word.isdecimal()]
    return shortened(written[0]) if written and all(map(_WRITTEN.fullmatch, words)) else ""


def _measured(source: Source, name: str, training: NDArray[np.int64] | None) -> Number | Category | str:
    """How one column is encoded, or why it is left out.

    Raises:
        DataError: if a number is infinite, or numbers are too large to be measured.
    """
    column = source.table[name]
    if is_text(column):
        return _category(source.words(name), name, training)
    try:
        values = source.numbers(name)
    except (DataError, pa.ArrowException):
        return f"{column.type} is neither number nor category"
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise DataError(
            f"{source.place} has an infinite number in column {name!r} of {counted(len(infinite), 'row')} (the first "
            f"is row {int(infinite[0]) + 1}); correct it, or leave the cell empty to have it filled"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        number = _number(values if training is None else values.take(training), name)
    if number is None:
        return "one value"
    if not np.isfinite(number.std):
        raise DataError(
            f"{source.place} has numbers as large as {np.nanmax(abs(values)):g} in column {name!r}, whose spread "
            "overflows; correct or scale them"
        )
    return number


def _category(coded: Coded, column: str, training: NDArray[np.int64] | None) -> Category | str:
    """The most frequent values of a column, in order, of those that occur in training; or why it is left out."""
    codes = coded.codes if training is None else coded.codes.take(training)
    counts = np.bincount(codes, minlength=len(coded.names))
    most = np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]
    values = tuple(coded.names[i] for i in sorted(most.tolist()) if coded.names[i] and counts[i])
    if len(values) < 2:
        return "one value"
    if len(codes) > 20 and np.count_nonzero(counts) > len(codes) / 2:
        return "almost as many values as rows"
    return Category(column, values)


def unknown_categories(source: Source, encoder: TableEncoder) -> list[str]:
    """A line for each column with words that have no place of their own, with the first row that has one.

    They share a place with missing values, so the model can't tell them apart.
    """
    lines = []
    for category in encoder.categories:
        coded = source.words(category.column)
        unknown = np.array([bool(name) and name not in category.values for name in coded.names])[coded.codes]
        if unknown.any():
            row, words = int(unknown.argmax()), sorted({coded.names[code] for code in np.unique(coded.codes[unknown])})
            lines.append(
                f"warning: column {category.column!r} has {some(map(repr, words))} in "
                f"{counted(int(unknown.sum()), 'row')} (the first is row {row + 1}), which the model was not "
                "given and takes for a missing value; it knows "
                f"{some(map(repr, category.values))}"
            )
    return lines


def _codes(source: Source, category: Category) -> NDArray[np.int16]:
    """The place of each row's value; all that have none share the last."""
    kind = source.table[category.column].type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise DataError(f"column {category.column!r} holds {kind} and not categories; give words")
    coded = source.words(category.column)
    places = {value: place for place, value in enumerate(category.values)}
    by_name = np.array([places.get(name, len(category.values)) for name in coded.names], np.int16)
    return by_name.take(coded.codes)


def _median(values: NDArray[np.float64]) -> float:
    """The median of numbers none of which is missing, which NumPy's own would sort for, at five times the cost."""
    half = len(values) // 2
    ordered = np.partition(values, half)
    upper = ordered[half]
    return float(upper if len(values) % 2 else (ordered[:half].max() + upper) / 2)


def _number(values: NDArray[np.float64], name: str) -> Number | None:
    missing = np.isnan(values)
    any_missing = bool(missing.any())
    known = values[~missing] if any_missing else values
    if not len(known):
        return None
    median = _median(known[:: 1 + len(known) // _MEDIAN_OF])
    filled = np.where(missing, median, values) if any_missing else values
    mean, std = float(filled.mean()), float(filled.std())
    scale = max(abs(mean), 1e-30)
    if not std > 1e-12 * scale:
        return None
    return Number(name, median, mean, std, any_missing)
