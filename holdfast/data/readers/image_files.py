"""Many image files at once: decoded into memory, checked before training, or measured to guess a size.

A set that fits is decoded once, by threads, into one tensor of bytes, which serves every epoch and is the check that
every file can be read (`decode_all`). A set that does not fit is checked by its headers and ends (`check_files`). How
much it would need says `image_memory`, and what size its images have `sample_sizes`. Nothing here raises for a file
that can't be used: all failures are collected, each as the sentence that `decode` has for it, so that a user mends them
in one go.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.readers.decoding import decode, image_file, turned_size
from holdfast.data.readers.images import ImageReader
from holdfast.errors import ConfigError, DataError

#: A position among the paths, and the sentence that says why the file there can't be used.
Failure = tuple[int, str]
#: Called with the number of files that are done, in the calling thread.
Progress = Callable[[int], None]

_BLOCK = 16  # files per task of a thread
_TAIL = 64  # bytes; some cameras fill up the end of a file with zeros
_END_OF_JPEG, _END_OF_PNG = b"\xff\xd9", b"IEND\xaeB`\x82"


def image_memory(n: int, side: int) -> int:
    """Bytes that `n` decoded RGB images of `side` x `side` pixels take."""
    return n * 3 * side * side


def decode_all(
    paths: Sequence[Path], reader: ImageReader, workers: int, progress: Progress | None = None
) -> tuple[Tensor, list[Failure]]:
    """Decode every image once into one tensor.

    Args:
        paths: the files.
        reader: crops and resizes; its normalisation is left to whoever gathers, as `TensorInputs` does.
        workers: threads that decode; 0 decodes in the calling thread.
        progress: is told how many files are done.

    Returns:
        uint8 of shape (n, 3, side, side), zeros where a file failed, and all failures in order.

    Raises:
        ConfigError: if the reader leaves images at their own sizes.
        DataError: if there is not enough memory.
    """
    if reader.side is None:
        raise ConfigError("images of different sizes don't fit into one tensor; give the reader a resize or a crop")
    pixels = _allocated(len(paths), reader.side)
    planes = pixels.numpy()

    def read(position: int) -> None:
        try:
            _write(reader, paths[position], planes[position])
        except DataError:
            planes[position] = 0
            raise

    return pixels, _failures(read, len(paths), workers, progress)


def check_files(paths: Sequence[Path], workers: int, progress: Progress | None = None) -> list[Failure]:
    """Check files without decoding most of them, for sets that are too large for memory.

    A file passes if it is there, has a header that `decode` accepts, and ends as its format ends (JPEG and PNG).
    Where the end is missing, and for other formats, it is decoded in full. Bytes that are damaged in the middle of a
    JPEG or PNG go unnoticed until it is read.

    Args:
        paths: the files.
        workers: threads that read; 0 reads in the calling thread.
        progress: is told how many files are done.

    Returns:
        All failures in order.
    """
    return _failures(lambda position: _check(paths[position]), len(paths), workers, progress)


def sample_sizes(paths: Sequence[Path], most: int = 200) -> list[tuple[int, int]]:
    """Width and height, upright, of at most `most` images, evenly spaced over the files, from their headers.

    Files that can't be read are left out; `decode_all` and `check_files` name them.
    """
    chosen = np.unique(np.linspace(0, len(paths) - 1, min(most, len(paths))).round().astype(np.int64))
    sizes = []
    with _without_warnings():
        for position in chosen.tolist():
            try:
                with image_file(paths[position]) as file:
                    sizes.append(turned_size(file))
            except DataError:
                continue
    return sizes


def _allocated(n: int, side: int) -> Tensor:
    try:
        return torch.empty(n, 3, side, side, dtype=torch.uint8)
    except (RuntimeError, MemoryError) as error:
        raise DataError(
            f"{n:,} images of {side} x {side} pixels need {image_memory(n, side) / 2**30:,.1f} GiB of memory, more "
            "than there is; choose a smaller size, or read them when they are needed"
        ) from error


def _write(reader: ImageReader, path: Path, planes: NDArray[np.uint8]) -> None:
    """Decode a file into `planes`, (3, side, side); a channel at a time is less than half the work of turning axes."""
    image = reader.picture(path)
    for plane, channel in zip(planes, "RGB", strict=True):
        plane[:] = np.frombuffer(image.tobytes("raw", channel), np.uint8).reshape(plane.shape)


def _check(path: Path) -> None:
    with image_file(path) as file:
        ends = _ends(path, file.format)
    if not ends:
        decode(path)


def _ends(path: Path, kind: str | None) -> bool:
    """Whether a file ends as its format says."""
    with path.open("rb") as file:
        file.seek(-min(_TAIL, path.stat().st_size), os.SEEK_END)
        tail = file.read().rstrip(b"\0")
    if kind in ("JPEG", "MPO"):
        return tail.endswith(_END_OF_JPEG)
    return kind == "PNG" and tail.endswith(_END_OF_PNG)


def _failures(read: Callable[[int], None], n: int, workers: int, progress: Progress | None) -> list[Failure]:
    """Call `read` for every position, in blocks by threads, and collect the sentences of those that it refused."""

    def block(start: int) -> list[Failure]:
        failed = []
        for position in range(start, min(start + _BLOCK, n)):
            try:
                read(position)
            except DataError as error:
                failed.append((position, str(error)))
        return failed

    starts = range(0, n, _BLOCK)
    found: list[Failure] = []
    with _without_warnings(), _mapped(block, starts, workers) as blocks:
        for start, failed in zip(starts, blocks, strict=True):
            found += failed
            if progress is not None:
                progress(min(start + _BLOCK, n))
    return found


@contextmanager
def _mapped(work: Callable[[int], list[Failure]], starts: range, workers: int) -> Iterator[Iterator[list[Failure]]]:
    """What `work` gives for each start, in order; leaving early, as by Ctrl-C, drops what was not begun."""
    if workers == 0:
        yield map(work, starts)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="holdfast-images")
    try:
        yield pool.map(work, starts)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Pillow warns of what is refused here with a sentence, and of harmless defects, file by file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
