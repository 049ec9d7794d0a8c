"""Images in a tree of folders, where the folder says what an image shows."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import DataError

_SUFFIXES = frozenset({".jpeg", ".jpg", ".png"})


def image_files(folder: Path) -> list[Path]:
    """The images directly in `folder`, by name; the order of a listing differs between machines.

    Raises:
        DataError: if there is no such folder.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; complete the tree of images that it belongs to")
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
