"""Folders of images: a folder per class (ImageFolder), images with a table that describes them, or images alone.

All become rows with an ``image`` column of paths below the folder. Listing 50,000 files takes a fraction of a second;
nothing is decoded here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.data.own.source import PARTS, Source
from holdfast.data.own.tables import read_table
from holdfast.data.own.words import some
from holdfast.errors import DataError, counted

#: Suffixes of files that are taken for images.
IMAGE_SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
_LEFT_BEHIND = frozenset({"thumbs.db", "desktop.ini"})  # by a system, as are hidden files
METADATA = ("metadata.csv", "metadata.parquet", "metadata.jsonl", "labels.csv", "annotations.csv")
IMAGE, LABEL = "image", "label"


def is_image(name: str) -> bool:
    """Whether a file's name ends as an image's does; what a system leaves behind (``._x.jpg``) is none."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith(".")  # noqa: PTH122 - in a hot loop


def read_class_folders(folder: Path, place: str) -> Source:
    """A tree whose folders name the classes: ``cats/1.jpg``, or ``train/cats/1.jpg`` where the first level names parts.

    Raises:
        DataError: if a class has no images, images lie beside the class folders, or no folder has images.
    """
    top = _folders(folder)
    parts = {name: PARTS[name.lower()] for name in top if name.lower() in PARTS and not name.isdecimal()}
    if parts and set(parts) != set(top):
        others = sorted(set(top) - set(parts))
        raise DataError(
            f"{place} has folders named after parts of the data ({some(sorted(parts))}) and others ({some(others)}); "
            "keep the one kind or the other on the first level"
        )
    files: list[str] = []
    labels: list[str] = []
    codes: list[int] = []
    unread: list[str] = []
    for part in sorted(parts) or [""]:
        for label in _folders(folder / part):
            found, unknown = _images_below(folder / part / label)
            if not found:
                raise DataError(
                    f"the class folder {folder / part / label} has no images ({some(sorted(IMAGE_SUFFIXES), 4)}); fill "
                    "it or remove it"
                )
            prefix = f"{part}/{label}" if part else label
            unread += [f"{prefix}/{name}" for name in unknown]
            files += [f"{prefix}/{name}" for name in found]
            labels += [label] * len(found)
            codes += [parts.get(part, -1)] * len(found)
    if not files and not parts and (flat := [name for name in _files(folder) if is_image(name)]):
        return unlabelled_images(folder, flat, place)
    if not files:
        raise DataError(f"{place} has no folders with images; make a folder per class, or add a metadata.csv")
    loose = [name for part in sorted(parts) or [""] for name in _files(folder / part) if is_image(name)]
    if loose:
        raise DataError(
            f"{place} has images beside its class folders ({some(loose, 3)}), which belong to no class; move them into "
            "one, or describe all images in a metadata.csv"
        )
    table = pa.table({IMAGE: files, LABEL: pa.array(labels).dictionary_encode()})
    layout = np.asarray(codes, np.int64) if parts else None
    note = f"left out: {counted(len(unread), 'file')} not named like images ({some(unread, 3)})"
    roles = {"image": IMAGE, "label": LABEL}
    return Source(place, table, folder=folder, parts=layout, roles=roles, notes=(note,) if unread else ())


def unlabelled_images(folder: Path, names: Sequence[str], place: str) -> Source:
    """Images of which nothing says what they show, such as new ones that a model is to look at."""
    return Source(place, pa.table({IMAGE: list(names)}), folder=folder, roles={"image": IMAGE})


def metadata_file(folder: Path) -> Path | None:
    """The table that describes the images in a folder, where there is one by a usual name."""
    return next((folder / name for name in METADATA if (folder / name).is_file()), None)


def read_described(folder: Path, metadata: Path, place: str, *, sample: bool = False) -> Source:
    """Images that a table describes; which of its columns has the paths is decided with the other roles."""
    table = read_table(metadata, sample=sample)
    return Source(place, table, folder=folder, has_images=has_images(folder), sample=sample)


def image_paths(source: Source, column: str, names: Sequence[str | None]) -> list[Path]:
    """The files that a column names, below the source's folder.

    Args:
        source: where the names come from.
        column: the column, for messages.
        names: its values.

    Raises:
        DataError: if a name is missing, absolute, or leaves the folder.
    """
    folder = source.folder or Path(source.place).parent
    root = os.path.abspath(folder)  # noqa: PTH100 - resolve() would follow links, which a user may have in his folder
    files = []
    for row, name in enumerate(names):
        if not name:
            raise DataError(
                f"{source.place} has no file name in column {column!r} of row {row + 1}; fill it or drop the row"
            )
        path = os.path.normpath(os.path.join(root, name))  # noqa: PTH118
        if os.path.isabs(name) or "\0" in name or not path.startswith(root + os.sep):  # noqa: PTH117
            raise DataError(
                f"{source.place} names the image {name[:200]!r} in row {row + 1}, which is not below {folder}; give "
                "paths relative to that folder that stay in it"
            )
        files.append(Path(path))
    return files


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        named = [entry.name for entry in entries if entry.is_dir()]
    return sorted(name for name in named if not name.startswith((".", "__MACOSX")))


def _files(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_file())


def _images_below(folder: Path) -> tuple[list[str], list[str]]:
    """Images in a folder and in the folders below it, relative to it, and other files that somebody put there.

    Sorted: a listing's order differs by machine.
    """
    images, others = [], []
    for place, below, names in os.walk(folder):
        below.sort()
        inner = os.path.relpath(place, folder)
        for name in names:
            path = name if inner == "." else f"{inner}/{name}"
            if is_image(name):
                images.append(path)
            elif not name.startswith(".") and name.lower() not in _LEFT_BEHIND:
                others.append(path)
    return sorted(images), sorted(others)


def has_images(folder: Path, depth: int = 3) -> bool:
    """Whether there is an image in a folder or up to `depth` levels below it; stops at the first."""
    names = _files(folder)
    if any(is_image(name) for name in names):
        return True
    return depth > 0 and any(has_images(folder / name, depth - 1) for name in _folders(folder))
