"""Fetch the files of a data set: resumable, checked, and never half written under the final name.

A transfer goes to ``NAME.part``; a run that was cut off continues there. Only a complete file whose checksum agrees is
moved to its final name, in one step. Archives are unpacked beside it in the same way.
"""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import DataError

#: Told after every block: the file's path, the bytes that are there, the bytes expected (None where unknown).
Progress = Callable[[str, int, int | None], None]

_BLOCK = 1 << 18


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set: where it goes, where it comes from, and how to know that it is the right one.

    Attributes:
        path: where it goes, relative to the data root.
        url: where it comes from; None where it can't be fetched without a person (a licence, a sign-up).
        md5: its MD5 sum, where its publisher gives that one.
        sha256: its SHA-256 sum.
        size: how many bytes it has.
        unpacks_to: the folder that appears when the archive is unpacked in the data root.
        also: other paths that serve as well, such as the uncompressed file.
    """

    path: str
    url: str | None = None
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    unpacks_to: str | None = None
    also: tuple[str, ...] = ()

    def found(self, root: Path) -> Path | None:
        """Where it is under `root`, in whichever accepted form; None where it is missing."""
        wanted = (root / path for path in (self.unpacks_to or self.path, *self.also))
        return next((path for path in wanted if path.exists()), None)


def fetch(file: RemoteFile, root: Path, progress: Progress | None = None, timeout: float = 30.0) -> Path:
    """Make sure that `file` is under `root`: download, resume, verify and unpack it as needed.

    Args:
        file: what is wanted.
        root: the data root; made if it is missing.
        progress: told how far the transfer is.
        timeout: seconds without an answer after which the host counts as unreachable.

    Returns:
        The file, or the folder it was unpacked to.

    Raises:
        DataError: if it can't be had; the message says what to do, and nothing is left under the final name.
    """
    found = file.found(root)
    if found is not None:
        return found
    target = root / file.path
    by_hand = target.exists()
    if not by_hand:
        _download(file, target, progress, timeout)
    if file.unpacks_to is None:
        return target
    if by_hand and (wrong := _mismatch(file, target)):
        raise DataError(f"{target} {wrong}; remove it to have it fetched again")
    folder = unpack(target, root / file.unpacks_to)
    if not by_hand:
        target.unlink()
    return folder


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive whose top folder is named like `folder`, all or nothing.

    Members that would land outside, links that lead outside, and devices are refused (tarfile's data filter).

    Args:
        archive: the tar file, compressed or not.
        folder: what appears.

    Returns:
        `folder`.

    Raises:
        DataError: if the archive is damaged, unsafe, not what was expected, or the disk is full.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder.parent) as work:
            with tarfile.open(archive) as tar:
                tar.extractall(work, filter="data")
            inner = Path(work) / folder.name
            if not inner.is_dir():
                raise DataError(f"{archive} has no folder {folder.name!r}; it isn't the archive that was expected")
            inner.replace(folder)
    except tarfile.FilterError as error:
        raise DataError(
            f"{archive} holds a member that would be written outside: {error}; it wasn't unpacked"
        ) from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is a damaged archive ({error}); remove it and fetch it again") from error
    except OSError as error:
        raise DataError(f"{archive} can't be unpacked to {folder}: {error.strerror or error}") from error
    return folder


def _download(file: RemoteFile, target: Path, progress: Progress | None, timeout: float) -> None:
    if file.url is None:
        raise DataError(f"{target} can't be fetched automatically; put it there by hand")
    if not file.url.startswith(("http://", "https://")):
        raise DataError(f"{file.url} isn't an http address; put the file at {target} by hand")
    part = _part_of(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer(file, file.url, target, progress, timeout)
        wrong = _mismatch(file, part)
        if wrong:
            part.unlink()
            raise DataError(
                f"what {file.url} sent {wrong}; it was deleted: try again, or put the file at {target} by hand"
            )
        part.replace(target)
    except OSError as error:
        raise DataError(
            f"{target} can't be written: {error.strerror or error}; make room, or choose another folder with "
            "HOLDFAST_DATA; run again, and the transfer goes on where it stopped"
        ) from error


def _part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _transfer(file: RemoteFile, url: str, target: Path, progress: Progress | None, timeout: float) -> None:
    """Bring the part file to its full length. Network trouble becomes a DataError, so an OSError means the disk."""
    part = _part_of(target)
    have = part.stat().st_size if part.exists() else 0
    response = _open(url, have, target, timeout)
    if response is None:
        return
    with response:
        resumed = response.status == http.client.PARTIAL_CONTENT
        have = have if resumed else 0
        total = file.size if response.length is None else have + response.length
        with part.open("ab" if resumed else "wb") as out:
            for block in _blocks(response, url, target):
                out.write(block)
                have += len(block)
                if progress is not None:
                    progress(file.path, have, total)
    if total is not None and have < total:
        raise DataError(f"{url} stopped after {have} of {total} bytes; run again, and the transfer goes on there")


def _open(url: str, have: int, target: Path, timeout: float) -> http.client.HTTPResponse | None:
    """The open response, from byte `have` where the host can do that; None where the part file is complete already."""
    part = _part_of(target)
    headers = {"User-Agent": "holdfast"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme is checked by _download
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise DataError(
                    f"{url} answered {error.code} {error.reason}; put the file at {target} by hand"
                ) from error
            if error.headers.get("Content-Range", "").endswith(f"/{have}"):
                return None
        part.unlink()
        raise DataError(f"the {have} bytes in {part} don't continue as {url}; they were deleted: run again") from error
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, target, error) from error
    starts = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if response.status == http.client.PARTIAL_CONTENT and starts != str(have):
        response.close()
        raise DataError(f"{url} went on at byte {starts or '?'} instead of {have}; delete {part} and run again")
    return response


def _blocks(response: http.client.HTTPResponse, url: str, target: Path) -> Iterator[bytes]:
    try:
        while block := response.read(_BLOCK):
            yield block
    except http.client.IncompleteRead as error:
        yield error.partial
        raise DataError(f"{url} stopped too early; run again, and the transfer goes on there") from error
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, target, error) from error


def _unreachable(url: str, target: Path, error: Exception) -> DataError:
    reason = getattr(error, "reason", None) or error
    return DataError(f"can't reach {url} ({reason}); without a network, put that file at {target} by hand")


def _mismatch(file: RemoteFile, path: Path) -> str:
    """What is wrong with the file at `path`, as the rest of a sentence; empty where nothing is."""
    if file.size is not None and path.stat().st_size != file.size:
        return f"has {path.stat().st_size} bytes instead of {file.size}"
    for kind, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if expected is not None:
            digest = hashlib.new(kind, usedforsecurity=False)
            with path.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
            if digest.hexdigest() != expected:
                return f"has the {kind} sum {digest.hexdigest()} instead of {expected}"
    return ""
