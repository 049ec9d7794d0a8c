"""Files and folders that only their owner can read: keys, secrets, personal models, what a node keeps."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import FederationError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """What this process makes meanwhile is 0600 and 0700, whatever the user's umask."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def private_folder(path: Path) -> Path:
    """A folder that nobody else enters: made where it is missing, closed where others could."""
    with private_files():
        path.mkdir(parents=True, exist_ok=True)
    _close(path)
    return path


def close_to_others(path: Path) -> int:
    """Take everybody else's rights away from a folder and all that is in it; links are left alone.

    Returns:
        How many files and folders were open.
    """
    inside = [Path(folder) / name for folder, folders, files in os.walk(path) for name in (*folders, *files)]
    return sum(_close(each) for each in (path, *inside) if not each.is_symlink())


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner reads.

    Raises:
        FederationError: if there is a file already: a secret in use is never written over.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise FederationError(
            f"there is a secret at {path} already, which may be in use; choose another place"
        ) from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _close(path: Path) -> bool:
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return False
    try:
        path.chmod(mode & ~_OTHERS)
    except PermissionError as error:
        raise FederationError(f"{path} can be read by others and belongs to somebody else; change its owner") from error
    return True
