"""What of a data set is there, whether it is whole, and whether it can be used, in bounded time.

Whole: sizes and sums agree with the published ones, or, where none are published, with those kept when the files first
came (`holdfast.data.checksums`). Usable: it loads, and some of its images decode. Large files are read, and all files
of a folder compared, only where everything is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from holdfast.data.archives import content_sum
from holdfast.data.catalog import DataSet
from holdfast.data.checksums import file_sum, remembered
from holdfast.data.clients.federations import FederatedData
from holdfast.data.download import what_is_wrong
from holdfast.data.examples import Splits
from holdfast.data.readers.texts import TextInputs
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError, HoldfastError, MissingDependencyError

#: ``damaged`` is what must be replaced; ``unknown`` is there and whole, but can't be opened on this machine.
State = Literal["usable", "incomplete", "damaged", "absent", "unknown"]

_LARGE = 1 << 29  # bytes of a file that is read only where everything is asked for
_SAMPLE = 32  # files of a folder, and inputs of a part, that are looked at otherwise
_BATCH = 64
_LONGEST = 200  # letters of an error that no reader expected


@dataclass(frozen=True)
class Finding:
    """What was found of a data set.

    Attributes:
        state: in one word.
        what: what is there, or what is wrong.
        remedy: what to do about it; empty where nothing is to be done.
    """

    state: State
    what: str
    remedy: str = ""


def check_entry(cls: type[DataSet] | type[FederatedData], root: Path, *, full: bool = False) -> Finding:
    """Check a data set of the catalog with its default options.

    Args:
        cls: the data set.
        root: the data root.
        full: read every file and every input, however long that takes.

    Returns:
        What was found.
    """
    fetched = f"run `holdfast data get {cls.name}`"
    remedy = f"{cls.by_hand}, under {root}" if cls.by_hand else fetched

    def count() -> str:
        loaded = cls().load(root)
        return _open(loaded, full=full) if isinstance(loaded, Splits) else f"{loaded.summary().clients:,} clients"

    return check_files(cls.files, root, remedy, count, full=full)


def check_files(
    files: Sequence[RemoteFile], root: Path, remedy: str, count: Callable[[], str], *, full: bool = False
) -> Finding:
    """Check some files and what can be read from them.

    Args:
        files: those that belong together.
        root: the data root.
        remedy: how to get what is missing.
        count: reads them, and says how much there is.
        full: read every file, however long that takes.

    Returns:
        What was found.
    """
    begun = [part for file in files for part in _parts(root / file.path)]
    if begun:
        remedy = f"{remedy}: a transfer stopped at {begun[0].stat().st_size:,} bytes of {begun[0].name} and goes on"
    notes, lacking = list[str](), list[str]()
    for file in files:
        path = file.found(root)
        packed = root / file.path
        if path is None:
            lacking.append(
                f"{file.path} isn't unpacked yet" if packed.exists() else f"no {file.unpacks_to or file.path}"
            )
        if path is None and not packed.exists():
            continue
        try:
            notes.append(_compare(file, path or packed, root, full=full))
        except (DataError, OSError) as error:
            return Finding("damaged", str(error), f"remove it, and {remedy}")
    if lacking:
        return Finding("incomplete", ", ".join(lacking), remedy) if notes else Finding("absent", "", remedy)
    return _read(count, "; ".join(dict.fromkeys(notes)), remedy)


def _read(count: Callable[[], str], notes: str, remedy: str) -> Finding:
    """What reading says of files that are all there, and whole as far as `notes` say."""
    try:
        counted = count()
    except MissingDependencyError as error:
        return Finding("unknown", notes, str(error))
    except HoldfastError as error:
        why = str(error)
    except Exception as error:
        why = " ".join(f"it can't be read ({type(error).__name__}: {error}".split())[:_LONGEST] + ")"
    else:
        return Finding("usable", "; ".join(filter(None, (counted, notes))))
    return Finding("damaged", why, f"remove what is damaged, and {remedy}")


def _parts(target: Path) -> list[Path]:
    return sorted(target.parent.glob(f"{target.name}*.part")) if target.parent.is_dir() else []


def _compare(file: RemoteFile, path: Path, root: Path, *, full: bool) -> str:
    """Whether what is at `path` is whole, as far as anything is known of it: how that is known.

    Raises:
        DataError: if it isn't whole.
    """
    sums = remembered(path)
    if path.is_dir():
        if next(path.iterdir(), None) is None:
            raise DataError(f"{path} is empty")
        return "no sums of its files were kept" if sums is None else _compare_files(sums, full=full)
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    as_published = path == root / file.path
    if as_published and file.size is not None and path.stat().st_size != file.size and file.content_md5 is None:
        raise DataError(f"{path} {what_is_wrong(file, path)}")
    if path.stat().st_size > _LARGE and not full:
        return "sums of large files not compared (--full does)"
    if file.content_md5 is not None:
        if content_sum(path) != file.content_md5:
            raise DataError(f"what {path} holds isn't what is published")
        return "content as published"
    if as_published and (wrong := what_is_wrong(file, path)):
        raise DataError(f"{path} {wrong}")
    if as_published and file.checksum is not None:
        return "sums as published"
    if sums is not None:
        return _compare_files(sums, full=True)
    return f"no sums known: {file.unchecked}" if file.unchecked else "no sums known"


def _compare_files(sums: Mapping[Path, str], *, full: bool) -> str:
    """Whether the files that were there first are still there, and some or all of them have their sums."""
    lost = [path for path in sums if not path.is_file()]
    if lost:
        raise DataError(f"{lost[0]}{_and_more(len(lost))} isn't there any more")
    paths = sorted(sums)
    for path in paths if full else [paths[at] for at in _spread(len(paths))]:
        if file_sum(path, "sha256") != sums[path]:
            raise DataError(f"{path} isn't what came the first time")
    return "sums as they came" if full or len(paths) <= _SAMPLE else f"{_SAMPLE} of {len(paths):,} sums as they came"


def _open(splits: Splits, *, full: bool) -> str:
    """Decode some or all inputs of each part: how many examples there are."""
    parts = splits.train, splits.validation, splits.test
    for examples in parts:
        if isinstance(examples.inputs, TextInputs):
            continue  # texts were read with the labels; tokens would need a tokenizer, maybe from the network
        rows = torch.arange(len(examples)) if full else torch.from_numpy(_spread(len(examples)))
        for start in range(0, len(rows), _BATCH):
            examples.inputs.gather(rows[start : start + _BATCH])
    return " + ".join(f"{len(examples):,}" for examples in parts) + " examples"


def _spread(n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A sample of ``0..n-1``, from the first to the last."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, _SAMPLE)).astype(np.int64))


def _and_more(n: int) -> str:
    return f" (and {n - 1:,} more)" if n > 1 else ""
