"""Columns of any of Arrow's types in the few forms that everything after this understands.

Files differ in how they store the same thing: a text is a string, a large string or a view, a list has a fixed size or
not, an extension has a type of its own around plain values. What is read is checked in full first: the offsets of a
damaged file would be followed out of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.data.own.threads import in_threads
from holdfast.data.own.words import shortened
from holdfast.errors import DataError

_LARGEST_PIECE = 1 << 30  # bytes; offsets of texts and lists have 31 bits
_USUAL = (
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_float16, pa.float32()),
)


def understood(table: pa.Table, *, trusted: bool = False) -> pa.Table:
    """The table with each column in its usual form, in one piece where that fits: it is gone through several times.

    Args:
        table: as a file holds it.
        trusted: its values were made by a parser and need no check.

    Raises:
        pa.ArrowException: if the file is damaged, or holds more than the usual form has room for.
    """
    if not trusted:
        table.validate(full=True)
    names, waiting = [str(name) for name in table.column_names], dict(enumerate(table.columns))
    del table  # the pieces of a column go as soon as it is in one; all columns twice would be the most memory of all
    columns = in_threads(lambda place: _in_one_piece(_usual(waiting.pop(place))), list(waiting))
    return pa.Table.from_arrays(columns, names)


def _usual(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    kind = usual_type(column.type)
    return column if kind.equals(column.type) else column.cast(kind)


def _in_one_piece(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.num_chunks < 2 or (column.nbytes > _LARGEST_PIECE and not pa.types.is_primitive(column.type)):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return pa.chunked_array([pa.concat_arrays(column.chunks)])


def usual_type(kind: Any) -> Any:
    """The usual type for a type; dictionaries stay around texts only."""
    is_ = pa.types
    for fits, usual in _USUAL:
        if fits(kind):
            return usual
    if is_.is_dictionary(kind) or is_.is_run_end_encoded(kind):
        values = usual_type(kind.value_type)
        return pa.dictionary(pa.int32(), values) if is_.is_dictionary(kind) and is_.is_string(values) else values
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind) or _is_view_of_lists(kind):
        inner = usual_type(kind.value_type)
        return pa.list_(inner.value_type if is_.is_dictionary(inner) else inner)
    return kind


def filled(column: pa.Array | pa.ChunkedArray, filling: float = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Numbers, with `filling` where one is missing, and where that is.

    Arrow's own ``to_numpy`` imports pandas, where there is one: a quarter of a second in which a million rows are read.
    """
    values = column
    if isinstance(column, pa.ChunkedArray):
        values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    there, held = values.buffers()
    rows = slice(values.offset, values.offset + len(values))
    numbers = np.frombuffer(held or b"", values.type.to_pandas_dtype())[rows]
    if not values.null_count:
        return numbers, np.empty(0, np.int64)
    gaps = np.flatnonzero(np.unpackbits(np.frombuffer(there, np.uint8), bitorder="little")[rows] == 0)
    numbers = numbers.copy()
    numbers[gaps] = filling
    return numbers, gaps


def check_utf8(column: pa.ChunkedArray) -> None:
    """See that texts are UTF-8; of those that repeat, each is looked at once.

    Raises:
        pa.ArrowInvalid: if one is not.
    """
    for chunk in column.chunks if is_text(column) else ():
        (chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk).validate(full=True)


def is_text(column: pa.ChunkedArray) -> bool:
    """Whether a column in its usual form holds texts."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return bool(pa.types.is_string(kind))


@contextmanager
def arrow_told(place: str) -> Iterator[None]:
    """What Arrow can't do with a column's type, of which it has dozens, as a sentence.

    Raises:
        DataError: instead of Arrow's own errors.
    """
    try:
        yield
    except pa.ArrowException as error:
        reason = shortened(str(error).partition("\n")[0], 150)
        raise DataError(
            f"{place} has a column that can't be used as it is ({reason}); make it words or numbers, or leave it out"
        ) from error


def _is_view_of_lists(kind: Any) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))
