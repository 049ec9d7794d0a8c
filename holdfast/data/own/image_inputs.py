"""Images as a model takes them: every file checked before training, and held in memory where they fit."""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.inputs import Inputs, LazyInputs, TensorInputs
from holdfast.data.own.columns import is_text
from holdfast.data.own.image_folders import image_paths
from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.source import Source
from holdfast.data.readers.image_files import Failure, check_files, decode_all, image_memory, sample_sizes
from holdfast.data.readers.images import ImageReader
from holdfast.data.transforms import Normalise
from holdfast.errors import DataError, counted

_log = logging.getLogger(__name__)
_SMALL = 96  # images up to this side keep their own size
_USUAL = 224
_SHOWN = 3


def reader_for(size: int) -> ImageReader:
    """Small images are resized to the square; large ones to 8/7 of it, whose middle is kept, as ImageNet's are."""
    return (
        ImageReader(resize=size, crop=None)
        if size <= _SMALL
        else ImageReader(resize=round(size * 256 / 224), crop=size)
    )


def guess_size(source: Source, column: str) -> tuple[int, str]:
    """A side for the square that images are resized to, and the reason: their own where they are small, else 224."""
    files = _files(source, column)
    sizes = sample_sizes(files)
    if not sizes:
        return _USUAL, ""
    sides = Counter(max(size) for size in sizes)
    side, _ = sides.most_common(1)[0]
    if max(sides) <= _SMALL:
        return side, f"images are {_described(sizes)}, and are made {side} x {side}"
    return _USUAL, f"images are {_described(sizes)}, and are made {_USUAL} x {_USUAL}"


def image_inputs(source: Source, column: str, size: int, options: ReadingOptions) -> Inputs:
    """The images of a column.

    Args:
        source: the rows.
        column: names the files, or holds the images' bytes as the hub keeps them.
        size: side of the square.
        options: threads, and whether to hold the images in memory.

    Raises:
        DataError: if a file is missing or can't be decoded; the first few are named with their rows.
    """
    files, reader = _files(source, column), reader_for(size)
    if _in_memory(len(files), size, options):
        pixels, failures = decode_all(files, reader, options.image_workers)
        _refuse(failures, source)
        return TensorInputs(pixels, Normalise(reader.mean, reader.std))
    _refuse(check_files(files, options.image_workers), source)
    return LazyInputs(lambda row: reader(files[row]), len(files), options.image_workers, (3, size, size))


def _files(source: Source, column: str) -> list[Any]:
    """Paths, or bytes where the images are in the table itself."""
    values = source.table[column]
    if pa.types.is_struct(values.type):
        rows = values.to_pylist()
        missing = [
            row for row, image in enumerate(rows) if image is None or not (image.get("bytes") or image.get("path"))
        ]
        if missing:
            raise DataError(f"{source.place} has no image in column {column!r} of row {missing[0] + 1}; drop the row")
        return [image["bytes"] if image.get("bytes") else Path(image["path"]) for image in rows]
    if not is_text(values):
        raise DataError(f"column {column!r} of {source.place} holds {values.type} and not file names of images")
    return list(image_paths(source, column, values.to_pylist()))


def _in_memory(count: int, size: int, options: ReadingOptions) -> bool:
    if options.in_memory != "auto":
        return options.in_memory == "yes"
    return image_memory(count, size) <= _free_memory() / 4


def _free_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not every system says
        return 4 << 30


def _refuse(failures: list[Failure], source: Source) -> None:
    if failures:
        first = "; ".join(f"row {row + 1}: {reason}" for row, reason in failures[:_SHOWN])
        more = f" (and {len(failures) - _SHOWN:,} more)" if len(failures) > _SHOWN else ""
        raise DataError(f"{counted(len(failures), 'image')} of {source.place} can't be used: {first}{more}")


def _described(sizes: list[tuple[int, int]]) -> str:
    widths, heights = np.array(sizes).T
    if len(set(sizes)) == 1:
        return f"{widths[0]} x {heights[0]}"
    return f"{widths.min()} to {widths.max()} pixels wide and {heights.min()} to {heights.max()} high"
