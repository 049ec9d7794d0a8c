"""Checksums of what was fetched: the published one where there is one, else the one of the first time.

A file without a published sum is trusted when it first arrives, and its SHA-256 sum is kept beside it, in
``NAME.sha256``. A folder that was unpacked gets the sums of its files in the same way, so that a file that is lost or
damaged later is found. The records are in the form of ``sha256sum``, which can check them too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import DataError
from holdfast.files import write_atomically

_BLOCK = 1 << 20


def file_sum(path: Path, kind: str) -> str:
    """The sum of a file.

    Args:
        path: the file.
        kind: ``sha256``, ``md5``, or ``git``: what git calls the content (SHA-1 of its length and its bytes).

    Returns:
        The digest in hexadecimal digits.
    """
    digest = hashlib.new("sha1" if kind == "git" else kind, usedforsecurity=False)
    if kind == "git":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def record_of(path: Path) -> Path:
    """Where the sums of `path`, a file or a folder, are kept."""
    return path.with_name(f"{path.name}.sha256")


def remember(path: Path) -> None:
    """Keep the sums of a file, or of all files in a folder, beside it."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    lines = (f"{file_sum(file, 'sha256')}  {file.relative_to(path.parent).as_posix()}\n" for file in files)
    write_atomically(record_of(path), "".join(lines).encode())


def remembered(path: Path) -> Mapping[Path, str] | None:
    """The SHA-256 sums that were kept of `path`, by file; None where there are none.

    Raises:
        DataError: if the record isn't one.
    """
    record = record_of(path)
    if not record.is_file():
        return None
    sums: dict[Path, str] = {}
    try:
        for line in record.read_bytes().decode().split("\n")[:-1]:
            digest, name = line.split("  ", 1)
            if len(bytes.fromhex(digest)) != hashlib.sha256().digest_size:
                raise ValueError(f"a sum has {len(digest)} digits")
            sums[path.parent / name] = digest
    except (OSError, ValueError) as error:
        raise DataError(f"{record} isn't a record of SHA-256 checksums ({error}); remove it") from error
    if not all(file == path or file.is_relative_to(path) for file in sums):
        raise DataError(f"{record} speaks of other files than {path}; remove it")
    return sums
