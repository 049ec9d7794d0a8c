"""Lines of a csv file by the machine code of `csv_cells`, with what it reads in arrays and where the rest stands."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.machine_code import Code, loaded

#: Kinds of columns; `csv_cells` has the same, and is not imported for the sake of its compiler's import.
FLOATS, WHOLES, WORDS, OTHERS = range(4)
#: Bytes that stand behind a text, all line ends: it is read by eight.
PADDING = 16

_LINE_END = ord("\n")
_SLOTS, _MOST_WORDS = 4096, 2048
_LARGEST_POWER, _LARGEST_EXACT_POWER = 280, 22
_LLVM = Path(__file__).with_name("csv_cells.ll")
_POINTER, _WHOLE, _BYTE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint8
_ARGUMENTS = {
    "read_cells": (_POINTER, _WHOLE, _BYTE, _BYTE, _WHOLE, _POINTER, _WHOLE, *[_POINTER] * 11),
    "gather": (_POINTER, _POINTER, _POINTER, _WHOLE, _POINTER),
}


@dataclass(frozen=True)
class Lines:
    """What whole lines hold.

    Attributes:
        rows: how many there are.
        text: their bytes.
        cells: 64 bits for each cell of numbers, shape (columns, rows or more); 0 where the cell was left.
        starts: where cells begin that were left, or different ones of a column of words; of the same shape.
        lengths: how long they are.
        places: the rows they are in.
        counts: how many each column has, shape (columns,).
        gather: writes such cells one under the other.
    """

    rows: int
    text: NDArray[np.uint8]
    cells: NDArray[np.int64]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    places: NDArray[np.int32]
    counts: NDArray[np.int64]
    gather: Code

    def numbers(self, column: int, kind: type[np.float64] | type[np.int64]) -> NDArray[Any]:
        """A column of numbers; 0 in the rows of those that were left."""
        values: NDArray[Any] = self.cells[column].view(kind)[: self.rows]
        return values

    def codes(self, column: int) -> NDArray[np.int32]:
        """For each row, which of the different cells of a column of words it has."""
        codes: NDArray[np.int32] = self.cells[column].view(np.int32)[: self.rows]
        return codes

    def left(self, column: int) -> tuple[bytes, NDArray[np.int32]]:
        """Cells of a column that were left, a line each, and their rows; of words, all different ones."""
        count = int(self.counts[column])
        out = np.empty(int(self.lengths[column, :count].sum()) + count, np.uint8)
        self.gather(_at(self.text), _at(self.starts[column]), _at(self.lengths[column]), count, _at(out))
        return out.tobytes(), self.places[column, :count]


@cache
def code() -> dict[str, Code] | None:
    """The machine code, 40 ms after the first call; None where it can't be had."""
    return loaded(_LLVM, _ARGUMENTS)


def read_lines(text: NDArray[np.uint8], kinds: Sequence[int], *, room: int, separator: str, point: str) -> Lines | None:
    """Read whole lines.

    Args:
        text: bytes, behind which `PADDING` line ends stand.
        kinds: of the columns.
        room: rows that there may be; they are counted where there are more.
        separator: between cells.
        point: before decimals.

    Returns:
        None where a line is not as all others are, or a column has too many different words.
    """
    found, end, columns = code(), len(text) - PADDING, len(kinds)
    if found is None or end >= 1 << 31:
        return None
    of_columns = np.asarray(kinds, np.int64)
    cells = np.empty((columns, room), np.int64)
    slots, hashes = np.full((columns, _SLOTS), -1, np.int32), np.empty((columns, _MOST_WORDS), np.uint64)
    starts, lengths, places = (np.empty((columns, room), np.int32) for _ in range(3))
    counts = np.zeros(columns, np.int64)
    tens, fives = _powers()
    rows = found["read_cells"](
        _at(text), end, ord(separator), ord(point), columns, _at(of_columns), room,
        _at(cells), _at(cells), _at(cells), _at(slots), _at(hashes),
        _at(starts), _at(lengths), _at(places), _at(counts), _at(tens), _at(fives),
    )  # fmt: skip
    if rows == -2:
        lines = int(np.count_nonzero(text == _LINE_END))
        return read_lines(text, kinds, room=lines, separator=separator, point=point)
    return None if rows < 0 else Lines(rows, text, cells, starts, lengths, places, counts, found["gather"])


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


@cache
def _powers() -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """Powers of ten that float64 holds, and the first 64 bits of powers of five."""
    fives = []
    for power in range(-_LARGEST_POWER, _LARGEST_POWER + 1):
        five = 5 ** abs(power)
        if power < 0:
            five = (1 << (2 * five.bit_length() + 64)) // five
        fives.append(five << 64 >> five.bit_length())
    tens = np.array([float(10**power) for power in range(_LARGEST_EXACT_POWER + 1)])
    return tens, np.array(fives, np.uint64)
