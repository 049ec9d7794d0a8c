"""Rows of a table as vectors: numbers standardised, categories one-hot, missing values filled and marked.

What is needed to do the same to other rows (means, medians, the categories that occur) is measured on training rows
only, and is plain values that a run keeps.
"""

from __future__ import annotations

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
from holdfast.data.own.values import coded_values, numbers_of, plain
from holdfast.data.own.words import some
from holdfast.errors import DataError

_MOST_CATEGORIES = 64  # of one column; rarer ones share a place
_MEDIAN_OF = 100_000
_BLOCK = 4096  # rows that are scaled at a time
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
    numbers: list[Number] = []
    categories: list[Category] = []
    dropped: dict[str, list[str]] = {}
    everything = len(rows) == len(source)
    for name in columns:
        column = source.table[name]
        if is_text(column):
            coded = coded_values(_filled(column))
            counts = np.bincount(coded.codes if everything else coded.codes[rows], minlength=len(coded.names))
            category = _category(coded.names, counts, name)
            if len(category.values) < 2:
                dropped.setdefault("one value", []).append(name)
            elif len(rows) > 20 and np.count_nonzero(counts) > len(rows) / 2:
                dropped.setdefault("almost as many values as rows", []).append(name)
            else:
                categories.append(category)
            continue
        try:
            values = numbers_of(column, name, source.place)
        except (DataError, pa.ArrowException):
            dropped.setdefault(f"{column.type} is neither number nor category", []).append(name)
            continue
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise DataError(
                f"{source.place} has an infinite number in column {name!r} of {len(infinite):,} rows (the first is row "
                f"{int(infinite[0]) + 1}); correct it, or leave the cell empty to have it filled"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            number = _number(values if everything else values[rows], name)
        if number is not None and not np.isfinite(number.std):
            raise DataError(
                f"{source.place} has numbers as large as {np.nanmax(abs(values)):g} in column {name!r}, whose spread "
                "is no number any more; correct or scale them"
            )
        if number is None:
            dropped.setdefault("one value", []).append(name)
        else:
            numbers.append(number)
    notes = [f"left out: {some(names)} ({reason})" for reason, names in dropped.items()]
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
    numbers = np.empty((len(source), len(encoder.numbers)), np.float32)
    columns = [numbers_of(source.table[number.column], number.column, source.place) for number in encoder.numbers]
    means, stds = (np.array([getattr(number, name) for number in encoder.numbers])[:, None] for name in ("mean", "std"))
    # Row by row in the end, as batches are gathered, but by blocks that stay in the cache; in float64 until then, since
    # a date in seconds has ten digits.
    for start in range(0, len(source) if columns else 0, _BLOCK):
        block = np.stack([values[start : start + _BLOCK] for values in columns])
        with np.errstate(over="ignore"):
            numbers[start : start + _BLOCK] = ((block - means) / stds).T
        if np.isinf(numbers[start : start + _BLOCK]).any():
            row, place = (int(at[0]) for at in np.nonzero(np.isinf(numbers[start : start + _BLOCK])))
            number = encoder.numbers[place]
            raise DataError(
                f"{source.place} has {columns[place][start + row]:g} in column {number.column!r} of row "
                f"{start + row + 1}, which is infinite or too far from the usual {number.mean:g}; correct it"
            )
    codes = np.empty((len(source), len(encoder.categories)), np.int16)
    for place, category in enumerate(encoder.categories):
        codes[:, place] = _codes(source.table[category.column], category)
    return TableInputs(torch.from_numpy(numbers), torch.from_numpy(codes), encoder)


def _category(names: Sequence[str], counts: NDArray[np.int64], column: str) -> Category:
    """The most frequent values of a column, in order, of those that occur in training."""
    most = np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]
    return Category(column, tuple(names[i] for i in sorted(most.tolist()) if names[i] and counts[i]))


def _codes(column: pa.ChunkedArray, category: Category) -> NDArray[np.int64]:
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise DataError(f"column {category.column!r} holds {column.type} and not categories; give words")
    codes = coded_values(_filled(column), category.values).codes
    return np.where(codes < 0, len(category.values), codes)


def _filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text without missing values: they are the empty word, which no category is called."""
    return plain(column).cast(pa.string()).fill_null("") if column.null_count else column


def _number(values: NDArray[np.float64], name: str) -> Number | None:
    missing = np.isnan(values)
    any_missing = bool(missing.any())
    known = values[~missing] if any_missing else values
    if not len(known):
        return None
    median = float(np.median(known[:: 1 + len(known) // _MEDIAN_OF]))
    filled = np.where(missing, median, values) if any_missing else values
    mean, std = float(filled.mean()), float(filled.std())
    scale = max(abs(mean), 1e-30)
    if not std > 1e-12 * scale:
        return None
    return Number(name, median, mean, std, any_missing)
