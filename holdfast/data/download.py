"""Fetch the files of a data set: resumable, checked, and never half written under the final name.

pooch transfers, retries once, compares checksums and moves a file to its final name in one step. What it does not do
stands here: an interrupted transfer goes on in ``NAME.part`` (pooch begins anew), errors are sentences that name the
address and the remedy, and archives are unpacked all or nothing (before Python 3.12 pooch unpacks without tarfile's
filter, and what it has unpacked stays after an error).
"""

from __future__ import annotations

import contextlib
import http
import logging
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from holdfast.errors import DataError

if TYPE_CHECKING:
    from requests import HTTPError, Response

#: Told after every block: the file's path, the bytes that are there, the bytes expected (None where unknown).
Progress = Callable[[str, int, int | None], None]

_BLOCK = 1 << 16
_LARGEST_RATIO = 100  # of an archive's content to the archive; texts compress by 10, bombs by 1000
_SMALL = 1 << 24  # bytes that an archive may unpack to, however small it is


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set: where it goes, where it comes from, and how to know that it is the right one.

    Attributes:
        path: where it goes, relative to the data root.
        url: where it comes from; None where it can't be fetched without a person (a licence, a sign-up).
        md5: its MD5 sum, where its publisher gives that one; not looked at where there is a SHA-256 sum.
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

    @property
    def checksum(self) -> str | None:
        """The sum that is compared, as pooch writes it: ``algorithm:digest``; None where the file has none."""
        if self.sha256 is not None:
            return f"sha256:{self.sha256}"
        return None if self.md5 is None else f"md5:{self.md5}"

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
    if by_hand and (wrong := _wrong(file, target)):
        raise DataError(f"{target} {wrong}; remove it to have it fetched again")
    folder = unpack(target, root / file.unpacks_to)
    if not by_hand:
        target.unlink()
    return folder


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive whose top folder is named like `folder`, all or nothing.

    Members that would land outside, links that lead outside, and devices are refused (tarfile's data filter), and so is
    an archive of more than 100 times its own size, before the disk is full of it.

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
                tar.extractall(work, filter=_bounded(archive))  # noqa: S202 - by tarfile's data filter
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


def _bounded(archive: Path) -> Callable[[tarfile.TarInfo, str], tarfile.TarInfo | None]:
    """The data filter of tarfile, with a limit on the bytes of all members together."""
    left = max(_SMALL, _LARGEST_RATIO * archive.stat().st_size)

    def check(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
        nonlocal left
        left -= member.size
        if left < 0:
            raise DataError(
                f"{archive} unpacks to more than {_LARGEST_RATIO} times its own size; it wasn't unpacked: compare it "
                "with what its publisher describes"
            )
        return tarfile.data_filter(member, place)

    return check


def _download(file: RemoteFile, target: Path, progress: Progress | None, timeout: float) -> None:
    """Have pooch fetch a file, and say what went wrong in the words of this library."""
    if file.url is None:
        raise DataError(f"{target} can't be fetched automatically; put it there by hand")
    if not file.url.startswith(("http://", "https://")):
        raise DataError(f"{file.url} isn't an http address; put the file at {target} by hand")
    import pooch  # noqa: PLC0415
    import requests  # noqa: PLC0415

    store = pooch.Pooch(
        target.parent,
        base_url="",
        registry={target.name: file.checksum},
        urls={target.name: file.url},
        retry_if_failed=1,
    )
    by_hand = f"put the file at {target} by hand"
    try:
        with _quiet(pooch.get_logger()):
            store.fetch(target.name, downloader=_Resuming(file, target, progress, timeout))
    except _RefusedError as error:
        raise DataError(f"{file.url} answered {error}; {by_hand}") from error
    except requests.HTTPError as error:
        said = f"{error.response.status_code} {error.response.reason}"
        raise DataError(f"{file.url} answered {said}; try again later, or {by_hand}") from error
    except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
        raise DataError(f"{file.url} stopped too early; run again, and the transfer goes on there") from error
    except requests.RequestException as error:
        raise DataError(f"can't reach {file.url} ({_reason(error)}); without a network, {by_hand}") from error
    except OSError as error:
        raise DataError(
            f"{target} can't be written: {_reason(error)}; make room, or choose another folder with "
            "HOLDFAST_DATA; run again, and the transfer goes on where it stopped"
        ) from error
    except ValueError as error:
        wrong = str(error) if isinstance(error, _WrongFileError) else f"doesn't have the sum {file.checksum}"
        raise DataError(f"what {file.url} sent {wrong}; it was deleted: try again, or {by_hand}") from error


class _RefusedError(Exception):
    """An answer that is the same the next time; pooch retries on ValueError and what requests raises only."""


class _WrongFileError(ValueError):
    """Bytes that can't be those of the file; the message is the rest of a sentence."""


@dataclass(frozen=True)
class _Resuming:
    """A downloader for pooch: pooch's own, which begins where ``NAME.part`` ends."""

    file: RemoteFile
    target: Path
    progress: Progress | None
    timeout: float

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Bring the part to its full length and give it the name under which pooch checks it."""
        from requests import HTTPError  # noqa: PLC0415

        part = self.target.with_name(self.target.name + ".part")
        try:
            with part.open("ab") as out:
                self._transfer(url, out, pooch)
        except HTTPError as error:
            if not _is_whole(error.response, part):
                raise _judged(error, part) from error
        finally:
            if part.exists() and not part.stat().st_size:
                part.unlink()
        if self.file.size is not None and (size := part.stat().st_size) != self.file.size:
            part.unlink()
            raise _WrongFileError(f"has {size} bytes instead of {self.file.size}")
        part.replace(output_file)

    def _transfer(self, url: str, out: BinaryIO, pooch: Any) -> None:
        from pooch import HTTPDownloader  # noqa: PLC0415

        have = out.tell()
        bar = None if self.progress is None else _DownloadBar(self.progress, self.file, out)
        # Compressed on the way, bytes would not be counted as they are on the disk.
        headers = {"User-Agent": "holdfast", "Accept-Encoding": "identity"} | (
            {"Range": f"bytes={have}-"} if have else {}
        )

        def begin(response: Response, **_: Any) -> None:
            """Before a byte is written: whether they go on where the part ends."""
            if response.status_code == http.HTTPStatus.PARTIAL_CONTENT:
                starts = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
                if starts != str(have):
                    out.truncate(0)
                    raise _WrongFileError(f"went on at byte {starts or '?'} instead of {have}")
            elif response.ok:
                out.truncate(0)
            if bar is not None:
                bar.start = out.seek(0, 2)

        HTTPDownloader(
            progressbar=bar or False,
            chunk_size=_BLOCK,
            timeout=self.timeout,
            headers=headers,
            hooks={"response": begin},
        )(url, out, pooch)


class _DownloadBar:
    """Pooch's idea of a progress bar, which tells our listener how long the part is."""

    def __init__(self, progress: Progress, file: RemoteFile, out: BinaryIO) -> None:
        self.progress, self.file, self.out = progress, file, out
        self.total, self.start = 0, 0

    def update(self, _: int) -> None:
        """Called after every block; its length is not used, because pooch counts the last one as full."""
        self.progress(self.file.path, self.out.tell(), self.start + self.total if self.total else self.file.size)

    def reset(self) -> None:
        """Nothing is counted here."""

    def close(self) -> None:
        """Nothing is drawn here."""


def _is_whole(response: Response, part: Path) -> bool:
    """Whether a part is the whole file already: the host has nothing after its last byte."""
    if response.status_code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return False
    return str(response.headers.get("Content-Range", "")).endswith(f"/{part.stat().st_size}")


def _judged(error: HTTPError, part: Path) -> Exception:
    """The error as one that pooch retries, or as one that it doesn't because the answer would be the same."""
    code = error.response.status_code
    judged: Exception = error
    if code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        part.unlink()  # it is longer than the file: the next attempt begins anew
    elif code < http.HTTPStatus.INTERNAL_SERVER_ERROR:
        judged = _RefusedError(f"{code} {error.response.reason}")
    return judged


def _wrong(file: RemoteFile, path: Path) -> str:
    """What is wrong with a file that somebody put at `path`, as the rest of a sentence; empty where nothing is."""
    import pooch  # noqa: PLC0415

    if file.size is not None and path.stat().st_size != file.size:
        return f"has {path.stat().st_size} bytes instead of {file.size}"
    kind, _, expected = (file.checksum or "").partition(":")
    found = pooch.file_hash(str(path), alg=kind) if kind else ""
    return "" if found == expected else f"has the {kind} sum {found} instead of {expected}"


def _reason(error: BaseException) -> str:
    """The innermost cause, which is the one that people know: ``Connection refused``."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return getattr(error, "strerror", None) or str(error)


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Without what pooch writes to the terminal about each file: our own progress says it."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
