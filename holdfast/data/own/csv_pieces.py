"""A large csv file cut at line ends into pieces, each of which one thread parses and encodes while it is in the cache.

Arrow's own reader hands blocks from thread to thread and looks every word up on its way through the parser. Pieces of a
few megabytes with the types of the first one, whose words are numbered once the whole piece is parsed, take about two
thirds of its processor time. Whatever does not fit (a type that changes later, a line end within quotes) is no error
here: the caller reads the file as a whole, which decides what is right.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from holdfast.data.own.threads import in_threads_one_by_one

_FIRST_BYTES = 1 << 20  # parsed alone, for the types
_PIECE_BYTES = 1 << 22  # parsed by one thread at a time
_MOST_WORDS = 1_000  # of the first piece that are numbered; a column with more is text
_NUMBERS = (pa.float64(), pa.int64())
_MOST_EXPECTED = 1 << 27  # rows that room is made for before they are there
_QUOTE = ord('"')


def read_in_pieces(path: Path, parsing: pa_csv.ParseOptions, converting: pa_csv.ConvertOptions) -> pa.Table | None:
    """The file as Arrow would read it as a whole, with words that repeat in dictionaries.

    Args:
        path: a file that is not compressed.
        parsing: the delimiter; lines end where a line ends, not within quotes.
        converting: what is a missing value, how numbers are written; it gets the types of the first piece.

    Returns:
        The table; None where the file is small, or is not one that can be cut so.
    """
    with path.open("rb") as file:
        cuts = _cuts(file)
        if len(cuts) < 3:
            return None
        try:
            first = _parsed(file, (cuts[0], cuts[1]), pa_csv.ReadOptions(), parsing, converting)
            numbered = [_encoded(column, _MOST_WORDS) for column in first.columns]
            converting.column_types = dict(zip(first.column_names, first.schema.types, strict=True))

            def piece(ends: tuple[int, int]) -> list[pa.ChunkedArray]:
                naming = pa_csv.ReadOptions(column_names=first.column_names)
                columns = _parsed(file, ends, naming, parsing, converting).columns
                return [
                    _encoded(column) if pa.types.is_dictionary(start.type) else column
                    for column, start in zip(columns, numbered, strict=True)
                ]

            expected = min(round(1.05 * first.num_rows * cuts[-1] / cuts[1]), _MOST_EXPECTED)
            whole = [_Numbers(column.type, expected) if column.type in _NUMBERS else _Chunks() for column in numbered]

            def append(columns: Iterable[pa.ChunkedArray]) -> None:
                for column, part in zip(whole, columns, strict=True):
                    for chunk in part.chunks:
                        column.append(chunk)

            append(numbered)
            in_threads_one_by_one(piece, pairwise(cuts[1:]), append)
        except pa.ArrowInvalid:
            return None
    columns = [column.whole(start.type) for column, start in zip(whole, numbered, strict=True)]
    return pa.Table.from_arrays(columns, first.column_names)


class _Chunks:
    """A column that keeps its pieces."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []

    def append(self, chunk: pa.Array) -> None:
        """Take the next rows."""
        self._chunks.append(chunk)

    def whole(self, kind: Any) -> pa.ChunkedArray:
        """All rows."""
        return pa.chunked_array(self._chunks, kind)


class _Numbers:
    """A column that grows in one array: a piece's memory is free, and still in the cache, when the next needs some."""

    def __init__(self, kind: Any, expected: int) -> None:
        self._values: NDArray[Any] = np.empty(expected, kind.to_pandas_dtype())
        self._rows = 0
        self._missing: list[NDArray[np.int64]] = []

    def append(self, chunk: pa.Array) -> None:
        """Take the next rows."""
        end = self._rows + len(chunk)
        if end > len(self._values):
            self._values = np.concatenate([self._values[: self._rows], np.empty(end, self._values.dtype)])
        self._values[self._rows : end] = (chunk.fill_null(0) if chunk.null_count else chunk).to_numpy()
        if chunk.null_count:
            self._missing.append(self._rows + np.flatnonzero(chunk.is_null()))
        self._rows = end

    def whole(self, kind: Any) -> pa.ChunkedArray:
        """All rows."""
        mask = None
        if self._missing:
            mask = np.zeros(self._rows, np.bool_)
            mask[np.concatenate(self._missing)] = True
        return pa.chunked_array([pa.array(self._values[: self._rows], kind, mask=mask, from_pandas=False)])


def _cuts(file: BinaryIO) -> list[int]:
    """Where pieces begin and the last one ends, each after a line end; one piece where a line is longer than that."""
    size = os.fstat(file.fileno()).st_size
    cuts = [0]
    while cuts[-1] < size:
        file.seek(cuts[-1] + (_PIECE_BYTES if cuts[-1] else _FIRST_BYTES))
        line = file.readline(_PIECE_BYTES)
        if line and not line.endswith(b"\n") and file.tell() < size:
            return [0, size]
        cuts.append(min(file.tell(), size))
    return cuts


def _parsed(
    file: BinaryIO,
    ends: tuple[int, int],
    reading: pa_csv.ReadOptions,
    parsing: pa_csv.ParseOptions,
    converting: pa_csv.ConvertOptions,
) -> pa.Table:
    """The lines from the first to the second of `ends`.

    Raises:
        pa.ArrowInvalid: if they don't fit the options, or a cut lies within quotes.
    """
    start, end = ends
    data = os.pread(file.fileno(), end - start, start)
    # An odd number of quotes: a cut lies within them, and Arrow would take the piece's end for that of the text.
    if np.count_nonzero(np.frombuffer(data, np.uint8) == _QUOTE) % 2:
        raise pa.ArrowInvalid("a line ends within quotes")
    reading.use_threads, reading.block_size = False, len(data) + 1
    return pa_csv.read_csv(pa.BufferReader(data), reading, parsing, converting)


def _encoded(column: pa.ChunkedArray, most: int | None = None) -> pa.ChunkedArray:
    """A column of texts in a dictionary, unless it has more than `most` of them; others as they are."""
    if not pa.types.is_string(column.type):
        return column
    words = column.dictionary_encode()
    few = most is None or all(len(chunk.dictionary) <= most for chunk in words.chunks)
    return words if few else column
