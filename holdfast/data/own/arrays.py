"""Arrays in an npz file: ``inputs``, and vectors beside them that say what each input is."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.data.own.columns import understood
from holdfast.data.own.source import PARTS, Source
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError

#: What people call the array that holds the inputs.
INPUTS = ("inputs", "x", "X", "images", "data", "features", "x_train", "arr_0")
_LARGEST_RATIO = 1032  # of what is deflated to its compressed form: the format has no higher one
_SMALL = 1 << 10


def read_arrays(path: Path, place: str) -> Source:
    """An npz file whose largest array, or the one with a usual name, is the inputs; the vectors beside it are columns.

    Raises:
        DataError: if the file is damaged, holds objects (which could run code), or lengths differ.
    """
    arrays, parts = _parts_joined(plain_arrays(path), path)
    named = [name for name in INPUTS if name in arrays]
    name = next((name for name in named if arrays[name].ndim), None)
    if name is None and named:
        raise DataError(f"{named[0]} in {path} is a single value; give numbers, a row per example")
    if name is None:
        raise DataError(f"{path} has no array {INPUTS[0]!r}; it has {some(arrays) or 'none'}: name the inputs so")
    inputs = arrays.pop(name)
    if inputs.dtype.kind not in "buif" or not len(inputs):
        raise DataError(
            f"{name} in {path} is of type {inputs.dtype} and shape {inputs.shape}; give numbers, a row per example"
        )
    columns = {}
    for other, array in arrays.items():
        if array.ndim == 0 or len(array) != len(inputs):
            raise DataError(f"{other} in {path} have shape {array.shape}, {name} {inputs.shape}; give one per input")
        try:
            columns[other] = _column(array)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise DataError(
                f"{other} in {path} is of type {array.dtype}, which says nothing about an input; give words or numbers"
            ) from error
    return Source(place, understood(pa.table(columns), trusted=True), inputs=inputs, parts=parts)


def _parts_joined(
    arrays: dict[str, NDArray[Any]], path: Path
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64] | None]:
    """Arrays that all are of a part, as ``x_train`` or ``test_images``, one after another, and the part of each row.

    Raises:
        DataError: if arrays of one name have other shapes in another part.
    """
    named = {name: _of_part(name) for name in arrays}
    codes = sorted({code for _, code in named.values()})
    stems = list(dict.fromkeys(stem for stem, _ in named.values()))
    if len(codes) < 2 or -1 in codes or len(named) != len(stems) * len(codes):
        return arrays, None
    by_place = {named[name]: array for name, array in arrays.items()}
    try:
        joined = {stem: np.concatenate([by_place[stem, code] for code in codes]) for stem in stems}
    except (KeyError, ValueError, TypeError) as error:
        reason = shortened(str(error), 120)
        raise DataError(
            f"the parts in {path} don't make one array ({reason}); give inputs of one shape in all parts"
        ) from error
    return joined, np.repeat(np.asarray(codes, np.int64), [len(by_place[stems[0], code]) for code in codes])


def _of_part(name: str) -> tuple[str, int]:
    """What an array is called without the part of the data in its name, and that part; -1 where there is none."""
    first, _, second = name.lower().replace("-", "_").partition("_")
    for part, stem in ((first, second), (second, first)):
        if stem and not part.isdecimal() and part in PARTS:
            return stem, PARTS[part]
    return name, -1


def _column(array: NDArray[Any]) -> pa.Array:
    """A value per input, or a list of them: labels per pixel are told so, and memberships are lists."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    flat = array.reshape(-1)
    values = pa.array(flat.astype(str) if array.dtype.kind in "SU" else flat.astype(array.dtype.newbyteorder("=")))
    if array.ndim == 1:
        return values
    width = array.size // len(array)
    return pa.ListArray.from_arrays(pa.array(np.arange(len(array) + 1) * width, pa.int32()), values)


def plain_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file by name; pickled objects are refused, so nothing in the file can run.

    Raises:
        DataError: if the file is missing or damaged, holds objects, or is a bomb.
    """
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; give the path of an npz file") from error
    except (OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError, NotImplementedError, MemoryError,
            OverflowError, RuntimeError, zlib.error, zipfile.BadZipFile, zipfile.LargeZipFile) as error:  # fmt: skip
        if isinstance(error, DataError):
            raise
        reason = shortened(str(error).partition("\n")[0] or type(error).__name__, 150)
        raise DataError(
            f"{path} isn't an npz file of plain arrays ({reason}); save it again with numpy.savez"
        ) from error


def _check_sizes(path: Path) -> None:
    """Before memory is taken: whether each array is as large as its file in the archive, and that can be so large.

    Raises:
        ValueError: if it isn't.
    """
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.file_size > _LARGEST_RATIO * member.compress_size + _SMALL:
                raise ValueError(f"{member.filename} promises {member.file_size} bytes in {member.compress_size}")
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            if not dtype.hasobject and dtype.itemsize * math.prod(shape) > member.file_size:
                raise ValueError(f"{member.filename} promises shape {shape} of {dtype} in {member.file_size} bytes")
