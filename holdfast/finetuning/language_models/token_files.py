"""Token ids on disk: every process tokenises its share once, and all of them map the whole.

Ids lie one after the other in one file, four bytes each, and whether they are learned in another, a byte each, so a
mini-batch is read where it lies. What stays in memory is a length per example.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.training.ranks import Ranks

#: Token ids of some examples, which of them are learned, and the examples' lengths.
Chunk: TypeAlias = "tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]"


def shared_token_files(
    folder: Path, examples: int, size: int, chunk: Callable[[int, int], Chunk], processes: Ranks
) -> Chunk:
    """Tokenise all examples, each process its share, and map the result.

    Args:
        folder: where files are made.
        examples: how many there are.
        size: of a chunk.
        chunk: tokenises the examples from one number up to another.
        processes: those that share the work; an error of one of them is raised in all.

    Returns:
        Memory-mapped ids and marks, and lengths.
    """
    bounds = [place * examples // processes.count for place in range(processes.count + 1)]
    first, last = bounds[processes.index], bounds[processes.index + 1]
    own, lengths = [folder / f"{name}-{processes.index}.bin" for name in ("ids", "learned")], list[NDArray[np.int64]]()

    def write() -> None:
        with own[0].open("wb") as ids, own[1].open("wb") as learned:
            for start in range(first, last, size):
                part = chunk(start, min(start + size, last))
                part[0].tofile(ids)
                part[1].tofile(learned)
                lengths.append(part[2])

    processes.together(write)
    mine = np.concatenate([np.empty(0, np.int64), *lengths])
    counts = processes.all_gather(int(mine.sum()))
    whole = folder / "ids.bin", folder / "learned.bin"

    def prepare() -> None:
        if processes.is_main:
            for path, width in zip(whole, (4, 1), strict=True):
                with path.open("wb") as file:
                    file.truncate(max(1, sum(counts)) * width)

    processes.together(prepare)
    _put(own, whole, sum(counts[: processes.index]))
    every: list[list[int]] = processes.all_gather(mine.tolist())
    return (
        np.memmap(whole[0], np.int32, "r", shape=(sum(counts),)),
        np.memmap(whole[1], np.bool_, "r", shape=(sum(counts),)),
        np.concatenate([np.array(part, np.int64) for part in every]),
    )


def _put(parts: list[Path], whole: tuple[Path, Path], offset: int) -> None:
    """Copy a share to its place in the whole, and remove it."""
    for part, path, width in zip(parts, whole, (4, 1), strict=True):
        with part.open("rb") as source, path.open("r+b") as target:
            target.seek(offset * width)
            while piece := source.read(2**24):
                target.write(piece)
        part.unlink()
