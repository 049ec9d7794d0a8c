"""Files that only their owner may read: 0600 in folders of 0700, whatever the process's umask is.

A personal model says what its client's data is like, and a node's secret is what the server knows it by. Other users of
the machine have no business with either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import CheckpointError

_OWNER_ONLY = 0o077


@contextmanager
def private_files() -> Iterator[None]:
    """What is made inside is the owner's alone. The umask is the process's: keep the block short."""
    before = os.umask(_OWNER_ONLY)
    try:
        yield
    finally:
        os.umask(before)


def private_folder(folder: Path) -> Path:
    """Make a folder that only its owner may look into; one that is there already is closed to others.

    Raises:
        CheckpointError: if it can't be made.
    """
    try:
        with private_files():
            folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_mode & _OWNER_ONLY:
            folder.chmod(0o700)
    except OSError as error:
        raise CheckpointError(f"{folder} can't be made a folder of one's own ({error.strerror})") from error
    return folder
