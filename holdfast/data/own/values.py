"""Columns of classes and attributes as whole numbers with names; what is no class is refused with what is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.data.own.columns import filled
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError, counted

_MOST_VALUES = 64  # of an attribute: a group needs examples
_SUPPORTED = "what is supported is one class per example: words or whole numbers"
MISSING = "(missing)"


@dataclass(frozen=True)
class Coded:
    """A column as numbers from 0.

    Attributes:
        codes: int64 of shape (n,); -1 for a value that has no name.
        names: a name per number.
    """

    codes: NDArray[np.int64]
    names: tuple[str, ...]


def classes_of(column: pa.ChunkedArray, name: str, place: str, known: Sequence[str] | None = None) -> Coded:
    """The class of each row.

    Args:
        column: its values.
        name: what it is called, for messages.
        place: where it is, for messages.
        known: the classes that a model has; all that occur by default, in order (numbers by size, words by alphabet).

    Raises:
        DataError: if a value is missing, is a fraction, a list or an image, or there are more classes than examples
            can teach; or a class is not among the known.
    """
    kind = column.type
    if pa.types.is_list(kind):
        raise DataError(
            f"the label column {name!r} of {place} holds lists (several labels per example, or a label per token or "
            f"pixel), which is not supported; {_SUPPORTED}"
        )
    if pa.types.is_struct(kind) or pa.types.is_binary(kind) or pa.types.is_map(kind):
        raise DataError(f"the label column {name!r} of {place} holds {kind}, such as masks; {_SUPPORTED}")
    if pa.types.is_temporal(kind):
        raise DataError(f"the label column {name!r} of {place} holds times; {_SUPPORTED}")
    if column.null_count or pa.types.is_floating(kind):
        missing = np.flatnonzero(column.is_null(nan_is_null=True).to_numpy())
    else:
        missing = np.empty(0, np.int64)
    if len(missing):
        raise DataError(
            f"{place} has no label in column {name!r} of {counted(len(missing), 'row')} (the first is row "
            f"{int(missing[0]) + 1}); fill them or drop these rows"
        )
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = column.cast(pa.float64()).to_numpy()
        wrong = np.flatnonzero(~np.isfinite(numbers) | (numbers != np.round(numbers)) | (abs(numbers) > 2**53))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"the label column {name!r} of {place} has {numbers[row]:g} in row {row + 1}, which is a quantity and "
                f"not a class: regression is not supported here; {_SUPPORTED} (cut the numbers into ranges)"
            )
        column = pa.chunked_array([pa.array(numbers.astype(np.int64))])
    coded = coded_values(column, known)
    if known is not None and (coded.codes < 0).any():
        row = int(np.flatnonzero(coded.codes < 0)[0])
        raise DataError(
            f"{place} has the class {shortened(str(column[row].as_py()))!r} in row {row + 1} of column {name!r}, "
            f"which the model does not know; it knows {some(known, 8)}"
        )
    if known is None:
        _check_count(coded, len(column), name, place)
    return coded


def _check_count(coded: Coded, rows: int, name: str, place: str) -> None:
    classes = len(coded.names)
    if classes < 2:
        raise DataError(
            f"the label column {name!r} of {place} has one value only, {coded.names[0]!r}; give two classes or more"
        )
    if classes > max(20, rows / 2):
        raise DataError(
            f"the label column {name!r} of {place} has {classes:,} different values in {rows:,} rows, which looks "
            f"like a quantity or a name, not a class; {_SUPPORTED}"
        )


def attribute_of(column: pa.ChunkedArray, name: str, place: str, known: Sequence[str] | None = None) -> Coded:
    """The attribute of each row; a missing value is a value of its own.

    Raises:
        DataError: if it has too many values for groups, or is no category.
    """
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_temporal(column.type):
        raise DataError(f"the attribute column {name!r} of {place} holds {column.type}; give words or whole numbers")
    if pa.types.is_floating(column.type):
        whole = column.cast(pa.float64()).to_numpy()
        finite = whole[np.isfinite(whole)]
        if (finite != np.round(finite)).any() or (abs(finite) > 2**53).any():
            raise DataError(
                f"the attribute column {name!r} of {place} holds fractions; cut it at its quantiles with "
                f"--attribute {name}:4, or give words or whole numbers"
            )
        column = pc.if_else(pc.is_finite(column), column, None).cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column.cast(pa.string()), MISSING)
    coded = coded_values(column, known)
    if known is None and len(coded.names) > _MOST_VALUES:
        raise DataError(
            f"the attribute column {name!r} of {place} has {len(coded.names):,} different values, and a group of each "
            "class with each of them would have few examples; group them first, or cut numbers with --attribute "
            f"{name}:4"
        )
    return coded


def quantiles_of(column: pa.ChunkedArray, name: str, place: str, pieces: int) -> tuple[NDArray[np.float64], Coded]:
    """A numeric column cut at its quantiles: the inner edges, and the piece of each row.

    Raises:
        DataError: if the column isn't numeric, or can't be cut into two pieces.
    """
    numbers = numbers_of(column, name, place)
    finite = numbers[np.isfinite(numbers)]
    if not 2 <= pieces <= _MOST_VALUES or not len(finite):
        raise DataError(
            f"the attribute {name!r} of {place} can't be cut into {pieces} pieces; give 2 to {_MOST_VALUES}"
        )
    above = finite[finite > finite.min()]
    if not len(above):
        raise DataError(f"the attribute {name!r} of {place} has one value only; it can't be cut at its quantiles")
    # Edges are values that occur, so that no piece is empty; where a quarter is one value, what is above it is cut off.
    edges = np.quantile(finite, np.linspace(0, 1, pieces + 1)[1:-1], method="higher")
    edges = np.unique(np.maximum(edges, above.min()))
    return edges, cut(numbers, edges, dates=pa.types.is_date(column.type) or pa.types.is_timestamp(column.type))


def cut(numbers: NDArray[np.float64], edges: NDArray[np.float64], *, dates: bool = False) -> Coded:
    """The piece of each number between edges; missing ones are a piece of their own where there are some.

    Args:
        numbers: of each row.
        edges: between pieces, in order.
        dates: whether they are seconds since 1970, and pieces are named by dates.
    """
    told = [_date(edge) if dates else f"{edge:g}" for edge in edges]
    names = [f"<{told[0]}", *(f"{low}..{high}" for low, high in pairwise(told)), f">={told[-1]}"]
    codes = np.searchsorted(edges, numbers, side="right").astype(np.int64)
    missing = ~np.isfinite(numbers)
    if missing.any():
        codes[missing], names = len(names), [*names, MISSING]
    return Coded(codes, tuple(names))


def _date(seconds: float) -> str:
    """A moment as a person writes it, without the time of the day where it is midnight."""
    moment = np.datetime64(int(seconds), "s")
    day = moment.astype("datetime64[D]")
    return str(day) if day == moment else str(moment).replace("T", " ")


def memberships_of(
    column: pa.ChunkedArray, name: str, place: str, known: Sequence[str] | None = None
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """A column of lists as a table of who belongs to what, (rows, values), and the values.

    Raises:
        DataError: if the lists hold something else than words and numbers, nothing, or too many values for groups.
    """
    inner = column.type.value_type
    if pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_temporal(inner):
        raise DataError(f"the attribute column {name!r} of {place} holds {column.type}; give lists of words")
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    rows = np.asarray(pc.list_parent_indices(column).to_numpy(), np.int64)
    values = pc.list_flatten(column)
    present = np.asarray(values.is_valid())
    rows, values = rows[present], values.drop_null()
    coded = coded_values(pa.chunked_array([values]), known)
    if known is None and not 0 < len(coded.names) <= _MOST_VALUES:
        raise DataError(
            f"the attribute column {name!r} of {place} has {len(coded.names):,} different values in its lists; give 1 "
            f"to {_MOST_VALUES}, and a group of each class with each"
        )
    table = np.zeros((len(column), len(coded.names)), np.bool_)
    inside = coded.codes >= 0
    table[rows[inside], coded.codes[inside]] = True
    return table, coded.names


def coded_values(column: pa.ChunkedArray, known: Sequence[str] | None = None) -> Coded:
    """Numbers for the values of a column without missing ones, ordered by size or alphabet; -1 for unknown values."""
    if not len(column):
        return Coded(np.empty(0, np.int64), tuple(known or ()))
    encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
    encoded = encoded.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    values, (codes, _) = encoded.dictionary.to_pylist(), filled(encoded.indices)
    if known is None:
        occurs = np.zeros(len(values), np.bool_)
        occurs[codes] = True
        occurring = np.flatnonzero(occurs).tolist()
        ordered = sorted(
            occurring, key=lambda code: _name(values[code]) if isinstance(values[code], str) else values[code]
        )
        known = tuple(dict.fromkeys(_name(values[code]) for code in ordered))  # " cat" and "cat" are one class
    place = {name: number for number, name in enumerate(known)}
    target = np.array([place.get(_name(value), -1) for value in values], np.int64)
    return Coded(target.take(codes), tuple(known))


def coded_words(column: pa.ChunkedArray) -> Coded:
    """Numbers for the words of a column; missing ones are the empty word, which no category is called."""
    return coded_values(plain(column).cast(pa.string()).fill_null("") if column.null_count else column)


def _name(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without a dictionary around text that repeats."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def numbers_of(column: pa.ChunkedArray, name: str, place: str) -> NDArray[np.float64]:
    """A column as float64, missing values as NaN.

    Raises:
        DataError: if it holds something else than numbers, truth values or times.
    """
    column = plain(column)
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        # Seconds since 1970, of dates too; what is only a time of day counts from midnight.
        wide = pa.timestamp("us") if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else pa.int64()
        column = pc.divide(column.cast(wide).cast(pa.int64()).cast(pa.float64()), 1e6)
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise DataError(f"column {name!r} of {place} holds {kind} and not numbers; write them as in 1234.5")
    numbers, _ = filled(column.cast(pa.float64(), safe=False), np.nan)
    return numbers
