"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import CheckpointError


def write_atomically(path: Path, payload: bytes) -> None:
    """Put `payload` at `path` as a whole or not at all.

    Args:
        path: the file; its folder must exist.
        payload: the content.

    Raises:
        CheckpointError: if the disk is full or the folder can't be written to; what was there before is untouched.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        kept = "; what was there before is unharmed" if path.exists() else ""
        raise CheckpointError(f"{path} can't be written ({error.strerror or error}){kept}") from error
