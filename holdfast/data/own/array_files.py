"""A single array out of a file: npy, npz, or the columns of a table; ``FILE:NAME`` picks one of several.

For what others computed, such as probabilities and features, where rows are examples and there is nothing to guess but
which array is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.data.own.arrays import plain_arrays
from holdfast.data.own.tables import READERS, read_table, suffix_of
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError, counted, nearest

#: Columns of a table of numbers that name or label examples and are none of the numbers.
_BESIDE = ("id", "index", "row", "label", "labels", "y", "class", "")


@dataclass(frozen=True, eq=False)
class FoundArray:
    """What was read.

    Attributes:
        values: with a row per example.
        columns: names of the columns, where they have some.
        notes: what was left out, a line each.
    """

    values: NDArray[Any]
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_array_file(place: str, usual: Sequence[str] = ()) -> FoundArray:
    """An array of a file.

    Args:
        place: ``FILE`` or ``FILE:NAME``, where the name is an array of an npz file or a column of a table.
        usual: names to look for where none is given and the file has several.

    Raises:
        DataError: if there is no such file or array, it holds objects, or it is not told which is meant.
    """
    path, name = _split(place)
    if not path.is_file():
        raise DataError(f"there is no file {path}; give a .npy, .npz, .csv or .parquet file")
    kind = suffix_of(path)
    if kind == ".npy":
        if name:
            raise DataError(f"{path} holds one array, so it has no {name!r}; leave the name out")
        return FoundArray(_npy(path))
    if kind == ".npz":
        arrays = plain_arrays(path)
        return FoundArray(arrays[_which(path, list(arrays), name, usual)])
    if kind in READERS:
        return _of_table(path, read_table(path), name, usual)
    raise DataError(f"{path} isn't a .npy, .npz, .csv, .parquet or .jsonl file; save it as one of these")


def _split(place: str) -> tuple[Path, str]:
    path = Path(place).expanduser()
    if path.exists() or ":" not in path.name:
        return path, ""
    file, _, name = str(path).rpartition(":")
    return Path(file), name


def _npy(path: Path) -> NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, EOFError, ValueError, TypeError, SyntaxError, OverflowError) as error:
        reason = shortened(str(error).partition("\n")[0] or type(error).__name__, 150)
        raise DataError(
            f"{path} isn't an npy file of numbers or words ({reason}); save it again with numpy.save"
        ) from error


def _which(path: Path, names: Sequence[str], name: str, usual: Sequence[str]) -> str:
    if name:
        if name not in names:
            raise DataError(f"{path} has no {name!r}{nearest(name, names)}; it has {some(names) or 'nothing'}")
        return name
    if len(names) == 1:
        return names[0]
    found = [word for word in usual if word in names]
    if not found:
        raise DataError(f"{path} has {some(names) or 'no arrays'}; say which is meant: {path}:NAME")
    return found[0]


def _of_table(path: Path, table: pa.Table, name: str, usual: Sequence[str]) -> FoundArray:
    names = [str(column) for column in table.column_names]
    if name or len(names) == 1 or any(word in names for word in usual):
        return FoundArray(_column(path, table, _which(path, names, name, usual)))
    numbers = [one for one in names if _is_numeric(table[one].type) and one.lower() not in _BESIDE]
    if not numbers:
        raise DataError(f"{path} has no columns of numbers but {some(names)}; say which column is meant: {path}:NAME")
    left = [one for one in names if one not in numbers]
    notes = (
        (f"{path.name}: {some(map(repr, left))} left out, {counted(len(numbers), 'column')} of numbers read",)
        if left
        else ()
    )
    return FoundArray(np.stack([table[one].to_numpy() for one in numbers], axis=1), tuple(numbers), notes)


def _column(path: Path, table: pa.Table, name: str) -> NDArray[Any]:
    column = table[name]
    if not (
        pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
    ):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    rows = column.combine_chunks()
    lengths = (
        np.unique(rows.value_lengths().to_numpy(zero_copy_only=False))
        if not pa.types.is_fixed_size_list(column.type)
        else [column.type.list_size]
    )
    if len(lengths) != 1 or rows.null_count:
        raise DataError(
            f"the lists of {name} in {path} differ in length or are missing; give one vector of a length per row"
        )
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), int(lengths[0]))


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
