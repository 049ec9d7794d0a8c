"""Data sets of the Hugging Face hub, by name (``hf:NAME[:CONFIG]``) or saved on disk, through the package `datasets`.

Only data is read: the package no longer runs scripts that come with a data set, and is told not to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.own.columns import understood
from holdfast.data.own.options import HUB
from holdfast.data.own.source import PARTS, Source
from holdfast.data.own.words import shortened, some
from holdfast.data.reachable import is_reachable
from holdfast.errors import DataError, MissingDependencyError


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return True
    return (folder / "dataset_info.json").is_file() and any(folder.glob("*.arrow"))


def read_saved(folder: Path, place: str) -> Source:
    """A data set that was saved to disk.

    Raises:
        MissingDependencyError: if the package isn't installed.
        DataError: if the folder is damaged.
    """
    datasets = _package()
    try:
        return _source(datasets.load_from_disk(str(folder)), place)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{place} can't be read as a saved data set ({_reason(error)}); save it again") from error


def read_hub(place: str) -> Source:
    """A data set by its name on the hub.

    Raises:
        MissingDependencyError: if the package isn't installed.
        DataError: if there is none of that name, or no network and no copy of it.
    """
    name, _, config = place.removeprefix(HUB).partition(":")
    if not name:
        raise DataError(f"{place!r} names no data set; give one as hf:NAME or hf:NAME:CONFIG")
    datasets = _package()
    try:
        with _offline_if_unreachable():
            return _source(datasets.load_dataset(name, config or None), place)
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"the data set {name!r} can't be loaded from the hub ({_reason(error)}); check its name and configuration, "
            "connect to the network once, or give a folder written by save_to_disk"
        ) from error


def _source(loaded: Any, place: str) -> Source:
    """The rows of one data set or of its parts; classes that have names get them."""
    named = dict(loaded) if isinstance(loaded, dict) else {"": loaded}
    others = [name for name in named if name.lower() not in PARTS]
    notes: tuple[str, ...] = ()
    if others and len(others) < len(named):  # as rows without labels, which some sets have beside train and test
        named = {name: part for name, part in named.items() if name not in others}
        notes = (f"left out: {some(others)} (neither train, validation nor test)",)
    tables, codes = [], []
    roles: dict[str, str] = {}
    for name, part in named.items():
        table = part.with_format("arrow")[:]
        table.validate(full=True)
        for column, feature in part.features.items():
            kind = type(feature).__name__
            if kind == "ClassLabel":
                words = [
                    None if code is None or code < 0 else feature.names[code] for code in table[column].to_pylist()
                ]
                table = table.set_column(table.column_names.index(column), column, pa.array(words, pa.string()))
                roles.setdefault("label", column)
            elif kind == "Image":
                roles.setdefault("image", column)
        tables.append(table)
        codes.append(PARTS.get(name.lower(), -1))
    whole = understood(pa.concat_tables(tables, promote_options="permissive"))
    if not len(whole):
        raise DataError(f"{place} has no rows; give a data set with a row per example")
    parts = np.repeat(np.asarray(codes, np.int64), [len(table) for table in tables]) if max(codes) >= 0 else None
    return Source(place, whole, parts=parts, roles=roles, notes=notes)


def _package() -> Any:
    try:
        import datasets  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError(
            "data sets of the hub need the package datasets; install it with `pip install 'holdfast[hub]'`"
        ) from error
    return datasets


@contextmanager
def _offline_if_unreachable() -> Iterator[None]:
    """Look for a copy on this machine where the hub doesn't answer; its client would try again for half a minute."""
    from huggingface_hub import constants  # noqa: PLC0415 - comes with datasets

    if constants.HF_HUB_OFFLINE or is_reachable(constants.ENDPOINT):
        yield
        return
    config = sys.modules["datasets"].config
    before = constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before


def _reason(error: BaseException) -> str:
    return shortened(str(error).strip().partition("\n")[0] or type(error).__name__, 160)
