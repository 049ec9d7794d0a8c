"""A large csv file cut at line ends into pieces, each of which one thread reads while it is in the cache.

Arrow parses the first, for the types. Of the others the machine code of `csv_cells` reads short decimals and numbers
words, in half of the time that Arrow needs for it; every other cell is Arrow's, a column of them at a time, and so is a
piece in which a line is not as all others are. Whatever does not fit (a type that changes later, a line end within
quotes) is no error here: the caller reads the file as a whole, which decides what is right.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from holdfast.data.own.csv_code import PADDING, code, read_lines
from holdfast.data.own.csv_columns import Append, growing, parse_cells
from holdfast.data.own.threads import in_threads_one_by_one

_FIRST_BYTES = 1 << 20  # parsed alone, for the types
_PIECE_BYTES = 1 << 22  # read by one thread at a time
_WORTH_CODE = 1 << 25  # the machine code takes 50 ms to load, and saves 1.5 ms of reading 1 MB
_MOST_EXPECTED = 1 << 27  # rows that room is made for before they are there
_QUOTE, _LINE_END = ord('"'), ord("\n")

#: How cells become values, where columns of these names have these types.
Converting = Callable[[dict[str, Any]], pa_csv.ConvertOptions]


def read_in_pieces(path: Path, separator: str, point: str, converting: Converting) -> pa.Table | None:
    """The file as Arrow would read it as a whole, with words that repeat in dictionaries.

    Args:
        path: a file that is not compressed.
        separator: between cells; lines end where a line ends, not within quotes.
        point: before decimals.
        converting: what is a missing value and how numbers are written; it gets the types of the first piece.

    Returns:
        The table; None where the file is small, or is not one that can be cut so.
    """
    parsing = pa_csv.ParseOptions(delimiter=separator)
    with path.open("rb") as file:
        cuts = _cuts(file)
        if len(cuts) < 3:
            return None
        try:
            first = _parsed(_text(file, (cuts[0], cuts[1])), pa_csv.ReadOptions(), parsing, converting({}))
            types = dict(zip(first.column_names, first.schema.types, strict=True))
            expected = min(round(1.05 * first.num_rows * cuts[-1] / cuts[1]), _MOST_EXPECTED)
            columns = [
                growing(
                    column, expected, partial(parse_cells, kind=column.type, parsing=parsing, converting=converting)
                )
                for column in first.columns
            ]
            kinds = [column.kind for column in columns]
            compiled = cuts[-1] >= _WORTH_CODE and code() is not None

            def piece(ends: tuple[int, int]) -> list[Append]:
                text, lines = _text(file, ends), None
                if compiled:
                    room = round(1.1 * first.num_rows * len(text) / cuts[1])
                    lines = read_lines(text, kinds, room=room, separator=separator, point=point)
                if lines is not None:
                    return [column.of_lines(lines, place) for place, column in enumerate(columns)]
                naming = pa_csv.ReadOptions(column_names=first.column_names)
                table = _parsed(text, naming, parsing, converting(types))
                return [column.of_arrow(part) for column, part in zip(columns, table.columns, strict=True)]

            def append(parts: list[Append]) -> None:
                for part in parts:
                    part()

            append([column.of_arrow(part) for column, part in zip(columns, first.columns, strict=True)])
            in_threads_one_by_one(piece, pairwise(cuts[1:]), append)
            return pa.Table.from_arrays([column.whole() for column in columns], first.column_names)
        except pa.ArrowInvalid:
            return None


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


def _text(file: BinaryIO, ends: tuple[int, int]) -> NDArray[np.uint8]:
    """The lines from the first to the second of `ends`, with line ends behind them."""
    start, end = ends
    text = np.empty(end - start + PADDING, np.uint8)
    found = os.preadv(file.fileno(), [text[: end - start].data], start)
    if found < end - start:
        raise OSError("it became shorter while it was read")
    text[end - start :] = _LINE_END
    return text


def _parsed(
    text: NDArray[np.uint8],
    reading: pa_csv.ReadOptions,
    parsing: pa_csv.ParseOptions,
    converting: pa_csv.ConvertOptions,
) -> pa.Table:
    """The lines of a text by Arrow.

    Raises:
        pa.ArrowInvalid: if they don't fit the options, or a cut lies within quotes.
    """
    data = text[:-PADDING]
    # An odd number of quotes: a cut lies within them, and Arrow would take the piece's end for that of the text.
    if np.count_nonzero(data == _QUOTE) % 2:
        raise pa.ArrowInvalid("a line ends within quotes")
    reading.use_threads, reading.block_size = False, len(data) + 1
    return pa_csv.read_csv(pa.BufferReader(data), reading, parsing, converting)
