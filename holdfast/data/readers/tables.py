"""Read csv files with errors that name the file, the column and the row."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError, nearest

#: What the split column may say, for training, validation and test.
SPLITS: Mapping[str, int] = {
    "0": 0, "1": 1, "2": 2, "train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2,
}  # fmt: skip

_DIGITS = 18  # of a whole number: as many as int64 surely holds


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, NDArray[np.object_]]:
    """Read some columns of a csv file as text; a missing value is the empty string.

    Args:
        path: the file; its first line names the columns.
        columns: those that are wanted.

    Returns:
        For each wanted column an array of strings, one per row.

    Raises:
        DataError: if the file can't be read, lacks a column, or has no rows.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes a while, and only data sets in csv files need it
    import pyarrow.csv as pa_csv  # noqa: PLC0415

    if not path.is_file():
        raise DataError(
            f"there is no file {path}; it must say what each example is, with the columns {', '.join(columns)}"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header = next(csv.reader(stream), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} can't be read as csv: {error}") from error
    for column in columns:
        if column not in header:
            known = ", ".join(name for name in header if name)
            raise DataError(f"{path} has no column {column!r}; it has {known}{_guess(column, header)}")
    try:
        table = pa_csv.read_csv(
            path,
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(columns),
                column_types=dict.fromkeys(columns, pa.string()),
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as csv: {error}") from error
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows")
    return {column: table[column].to_numpy() for column in columns}


def whole_numbers(path: Path, column: str, values: NDArray[np.object_], names: Sequence[str] = ()) -> NDArray[np.int64]:
    """Turn a column of text into integers from 0.

    Args:
        path: the file, for the message.
        column: the column, for the message.
        values: its values.
        names: what the numbers stand for; the largest number allowed follows from it.

    Returns:
        int64 of shape (n,).

    Raises:
        DataError: if a value is not an integer, is negative, or has no name; it names the row, from 1 below the header.
    """
    words, inverse = np.unique(values.astype(str), return_inverse=True)
    numbers = np.array([_whole_number(word.strip()) for word in words], np.int64)
    if len(names):
        numbers[numbers >= len(names)] = -1
    result: NDArray[np.int64] = numbers[inverse]
    wrong = np.flatnonzero(result < 0)
    if len(wrong):
        at = int(wrong[0])
        allowed = f"an integer from 0 to {len(names) - 1}" if len(names) else "an integer from 0"
        raise DataError(f"{path} has {values[at]!r} in column {column!r} of row {at + 1}; it must be {allowed}")
    return result


def _whole_number(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) <= _DIGITS else -1


def split_codes(path: Path, column: str, values: NDArray[np.object_]) -> NDArray[np.int64]:
    """Turn a split column (0, 1, 2 or train, val, test) into 0, 1, 2.

    Raises:
        DataError: if a value is something else, or one of the three parts is empty.
    """
    words, inverse = np.unique(values.astype(str), return_inverse=True)
    codes: NDArray[np.int64] = np.array([SPLITS.get(word.strip().lower(), -1) for word in words], np.int64)[inverse]
    wrong = np.flatnonzero(codes < 0)
    if len(wrong):
        at = int(wrong[0])
        raise DataError(
            f"{path} has {str(values[at])!r} in column {column!r} of row {at + 1}; give 0, 1, 2 or train, val, test"
        )
    for code, part in enumerate(("train (0)", "val (1)", "test (2)")):
        if not (codes == code).any():
            raise DataError(f"{path} has no row whose {column!r} is {part}; each of train, val and test needs examples")
    return codes


def _guess(column: str, header: Sequence[str]) -> str:
    clause = nearest(column, [name for name in header if name])
    return clause if "did you mean" in clause else ""
