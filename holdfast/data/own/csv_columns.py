"""Columns of a csv file that grow piece by piece, from what the machine code read or from what Arrow parsed.

Each has two steps for a piece: threads make of it what can be made without knowing what is before it, and give the
step that appends it, which is done in the order of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from holdfast.data.own import csv_code
from holdfast.data.own.columns import filled
from holdfast.data.own.csv_code import Lines

#: Makes values of cells that stand one under the other, a line each.
Parse = Callable[[bytes], pa.Array]
Append = Callable[[], None]

_MOST_WORDS = 1_000  # of the first piece that are numbered; a column with more is text
_NUMBERS = {pa.float64(): csv_code.FLOATS, pa.int64(): csv_code.WHOLES}


class Column(Protocol):
    """A column that grows.

    Attributes:
        kind: what the machine code is told that it is.
    """

    kind: int

    def of_lines(self, lines: Lines, place: int) -> Append:
        """What appends the rows that the machine code read."""
        ...

    def of_arrow(self, part: pa.ChunkedArray) -> Append:
        """What appends the rows that Arrow parsed."""
        ...

    def whole(self) -> pa.ChunkedArray:
        """All rows."""
        ...


def growing(first: pa.ChunkedArray, expected: int, parse: Parse) -> Column:
    """An empty column for what begins so.

    Args:
        first: its first rows, as Arrow parsed them.
        expected: how many there will be, about.
        parse: for the cells that the machine code leaves.
    """
    kind = first.type
    if kind in _NUMBERS:
        return _Numbers(kind, expected, parse)
    if pa.types.is_string(kind) and len(first.unique()) <= _MOST_WORDS:
        return _Words(expected, parse)
    return _Others(kind, parse)


def parse_cells(
    cells: bytes, kind: Any, parsing: pa_csv.ParseOptions, converting: Callable[[dict[str, Any]], Any]
) -> pa.Array:
    """What Arrow makes of cells that stand one under the other, a line each.

    Raises:
        pa.ArrowInvalid: if one is not of the type.
    """
    reading = pa_csv.ReadOptions(column_names=["cell"], use_threads=False, block_size=len(cells) + 1)
    options = pa_csv.ParseOptions(delimiter=parsing.delimiter, ignore_empty_lines=False)
    table = pa_csv.read_csv(pa.BufferReader(cells), reading, options, converting({"cell": kind}))
    return table["cell"].combine_chunks()


class _Growing:
    """An array that has room for more: a piece's memory is free, and still in the cache, when the next needs some."""

    def __init__(self, kind: Any, expected: int) -> None:
        self._values: NDArray[Any] = np.empty(expected, kind)
        self._rows = 0

    def next(self, rows: int) -> NDArray[Any]:
        """Room for the next rows."""
        start, end = self._rows, self._rows + rows
        if end > len(self._values):
            self._values = np.concatenate([self._values[:start], np.empty(end, self._values.dtype)])
        self._rows = end
        return self._values[start:end]

    def __len__(self) -> int:
        return self._rows

    def values(self) -> NDArray[Any]:
        """What there is."""
        return self._values[: self._rows]


class _Numbers:
    """Numbers of 64 bits."""

    def __init__(self, kind: Any, expected: int, parse: Parse) -> None:
        self.kind = _NUMBERS[kind]
        self._type, self._parse = kind, parse
        self._dtype = kind.to_pandas_dtype()
        self._values = _Growing(self._dtype, expected)
        self._missing: list[NDArray[np.int64]] = []

    def of_lines(self, lines: Lines, place: int) -> Append:
        values, missing = lines.numbers(place, self._dtype), np.empty(0, np.int32)
        if lines.counts[place]:
            cells, rows = lines.left(place)
            values[rows], gaps = filled(self._parse(cells))
            missing = rows[gaps]
        return lambda: self._append(values, missing)

    def of_arrow(self, part: pa.ChunkedArray) -> Append:
        values, gaps = filled(part)
        return lambda: self._append(values, gaps)

    def _append(self, values: NDArray[Any], missing: NDArray[Any]) -> None:
        if len(missing):
            self._missing.append(missing + len(self._values))
        self._values.next(len(values))[:] = values

    def whole(self) -> pa.ChunkedArray:
        return pa.chunked_array([_primitive(self._values.values(), self._type, self._missing)])


def _primitive(values: NDArray[Any], kind: Any, missing: list[NDArray[np.int64]]) -> pa.Array:
    """The values without a copy, and without ``pa.array``, which imports pandas; see `filled`."""
    there = None
    if missing:
        mask = np.ones(len(values), np.bool_)
        mask[np.concatenate(missing)] = False
        there = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [there, pa.py_buffer(values)])


class _Words:
    """Words that repeat. A cell is looked at by Arrow when it is written so for the first time."""

    kind = csv_code.WORDS

    def __init__(self, expected: int, parse: Parse) -> None:
        self._parse = parse
        self._codes = _Growing(np.int32, expected)
        self._by_cell: dict[bytes, int] = {}
        self._by_word: dict[str | None, int] = {}

    def of_lines(self, lines: Lines, place: int) -> Append:
        cells = lines.left(place)[0].split(b"\n")[:-1]
        if len(cells) != lines.counts[place]:
            raise pa.ArrowInvalid("a line ends within quotes")
        codes = lines.codes(place)
        return lambda: self._append(codes, self._places_of(cells))

    def of_arrow(self, part: pa.ChunkedArray) -> Append:
        encoded = part.combine_chunks().dictionary_encode()
        words = [*encoded.dictionary.to_pylist(), None]
        codes, _ = filled(encoded.indices, len(words) - 1)
        return lambda: self._append(
            codes, [self._place_of(word) for word in (words if encoded.null_count else words[:-1])]
        )

    def _places_of(self, cells: list[bytes]) -> list[int]:
        new = [cell for cell in cells if cell not in self._by_cell]
        if new:
            said = self._parse(b"".join(cell + b"\n" for cell in new)).to_pylist()
            self._by_cell.update(zip(new, map(self._place_of, said), strict=True))
        return [self._by_cell[cell] for cell in cells]

    def _place_of(self, word: str | None) -> int:
        return self._by_word.setdefault(word, len(self._by_word))

    def _append(self, codes: NDArray[np.int32], places: list[int]) -> None:
        # Clipped, though none is too large: else NumPy would make a copy first.
        np.array(places, np.int32).take(codes, out=self._codes.next(len(codes)), mode="clip")

    def whole(self) -> pa.ChunkedArray:
        codes, gap = self._codes.values(), self._by_word.get(None)
        gaps = [] if gap is None else [np.flatnonzero(codes == gap)]
        words = [(word or "").encode() for word in self._by_word]
        ends = np.cumsum([0, *map(len, words)]).astype(np.int32)
        said = pa.StringArray.from_buffers(len(words), pa.py_buffer(ends), pa.py_buffer(b"".join(words)))
        return pa.chunked_array([pa.DictionaryArray.from_arrays(_primitive(codes, pa.int32(), gaps), said)])


class _Others:
    """Texts, dates, truth values and whatever else Arrow knows."""

    kind = csv_code.OTHERS

    def __init__(self, kind: Any, parse: Parse) -> None:
        self._type, self._parse = kind, parse
        self._chunks: list[pa.Array] = []

    def of_lines(self, lines: Lines, place: int) -> Append:
        values = self._parse(lines.left(place)[0])
        return lambda: self._chunks.append(values)

    def of_arrow(self, part: pa.ChunkedArray) -> Append:
        return lambda: self._chunks.extend(part.chunks)

    def whole(self) -> pa.ChunkedArray:
        return pa.chunked_array(self._chunks, self._type)
