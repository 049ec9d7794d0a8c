"""Fetch the files of a data set: resumable, checked, and never half written under the final name.

pooch transfers, retries once and moves a file to its final name in one step. What it does not do stands here: a file
may have several addresses, an interrupted transfer goes on in ``NAME.part`` (pooch begins anew), no more bytes are
taken than the file has, errors are sentences that name every address and the remedy, and a file whose publisher gives
no checksum is compared with what came the first time (`holdfast.data.checksums`).
"""

from __future__ import annotations

import contextlib
import hashlib
import http
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from holdfast.data.archives import unpack
from holdfast.data.checksums import file_sum, record_of, remember, remembered
from holdfast.data.remote_files import Progress, RemoteFile
from holdfast.errors import DataError, HoldfastError

if TYPE_CHECKING:
    from requests import HTTPError, Response

_log = logging.getLogger(__name__)
_BLOCK = 1 << 16
_LARGEST = 1 << 34  # bytes of a file whose size isn't stated; the largest here has a tenth of that


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
    if file.checksum is None and remembered(target) is None:
        _remember(target)
    if file.unpacks_to is None:
        return target
    if by_hand and (wrong := what_is_wrong(file, target)):
        raise DataError(f"{target} {wrong}; remove it to have it fetched again")
    folder = unpack(target, root / file.unpacks_to)
    _remember(folder)
    if not by_hand:
        target.unlink()
    return folder


def what_is_wrong(file: RemoteFile, path: Path) -> str:
    """What is wrong with the bytes at `path`, which should be those of `file`: the rest of a sentence, or nothing."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"has {size} bytes instead of {file.size}"
    if file.checksum is not None:
        kind, _, expected = file.checksum.partition(":")
        found = file_sum(path, kind)
        return "" if found == expected else f"has the {kind} sum {found} instead of {expected}"
    sums = remembered(path)
    if sums is None or sums.get(path) == file_sum(path, "sha256"):
        return ""
    return f"isn't what came the first time (its sum is in {record_of(path)}, to be removed if a change is expected)"


def _remember(path: Path) -> None:
    """Keep the sums of `path`; the data are whole without them, so what goes wrong here is only logged."""
    try:
        remember(path)
    except (OSError, HoldfastError) as error:
        _log.warning("the checksums of %s can't be kept: %s", path, error)


def _download(file: RemoteFile, target: Path, progress: Progress | None, timeout: float) -> None:
    """Fetch a file from the first address that gives it."""
    if file.url is None:
        raise DataError(f"{target} can't be fetched automatically; put it there by hand")
    by_hand = f"put the file at {target} by hand"
    failures = list[_UnavailableError]()
    for url in file.addresses:
        try:
            _download_from(url, file, target, progress, timeout)
        except _UnavailableError as error:
            _log.info("%s; %s", error, "trying the next address" if url != file.addresses[-1] else "there is no other")
            failures.append(error)
        else:
            return
    if len(failures) == 1:
        raise DataError(f"{failures[0]}; {failures[0].remedy.format(by_hand=by_hand)}") from failures[0]
    reasons = ", and ".join(map(str, failures))
    raise DataError(f"{reasons}; try again later, or {by_hand}") from failures[-1]


class _UnavailableError(Exception):
    """An address that doesn't give the file: why, and what to do where it is the only one."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def _download_from(url: str, file: RemoteFile, target: Path, progress: Progress | None, timeout: float) -> None:
    """Have pooch fetch a file from one address, and say what went wrong in the words of this library."""
    if not url.startswith(("http://", "https://")):
        raise _UnavailableError(f"{url} isn't an http address", "{by_hand}")
    import pooch  # noqa: PLC0415
    import requests  # noqa: PLC0415

    store = pooch.Pooch(
        target.parent, base_url="", registry={target.name: None}, urls={target.name: url}, retry_if_failed=1
    )
    try:
        with _quiet(pooch.get_logger()):
            store.fetch(target.name, downloader=_Resuming(file, target, progress, timeout))
    except _RefusedError as error:
        raise _UnavailableError(f"{url} {error}", "{by_hand}") from error
    except requests.HTTPError as error:
        said = f"{error.response.status_code} {error.response.reason}"
        raise _UnavailableError(f"{url} answered {said}", "try again later, or {by_hand}") from error
    except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
        raise _UnavailableError(f"{url} stopped too early", "run again, and the transfer goes on there") from error
    except requests.RequestException as error:
        raise _UnavailableError(f"can't reach {url} ({_reason(error)})", "without a network, {by_hand}") from error
    except OSError as error:
        raise DataError(
            f"{target} can't be written: {_reason(error)}; make room, or choose another folder with "
            "HOLDFAST_DATA; run again, and the transfer goes on where it stopped"
        ) from error
    except _WrongFileError as error:
        raise _UnavailableError(f"what {url} sent {error}", "it was deleted: try again, or {by_hand}") from error


class _RefusedError(Exception):
    """An answer that is the same the next time; pooch retries on ValueError and what requests raises only."""


class _WrongFileError(ValueError):
    """Bytes that can't be those of the file; the message is the rest of a sentence."""


@dataclass(frozen=True)
class _Resuming:
    """A downloader for pooch: pooch's own, which begins where the part that is there ends, and checks what came."""

    file: RemoteFile
    target: Path
    progress: Progress | None
    timeout: float

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Bring the part to its full length, check it, and give it the name that pooch moves to the final one."""
        from requests import HTTPError  # noqa: PLC0415

        part = self._part(url)
        try:
            with part.open("ab") as out:
                self._transfer(url, out, pooch)
        except HTTPError as error:
            if not _is_whole(error.response, part):
                raise _judged(error, part) from error
        except _WrongFileError:
            part.unlink()
            raise
        finally:
            if part.exists() and not part.stat().st_size:
                part.unlink()
        if wrong := self._wrong(part):
            part.unlink()
            raise _WrongFileError(wrong)
        part.replace(output_file)

    def _part(self, url: str) -> Path:
        """Where the bytes of `url` gather: where no sum can tell, those of two hosts never in one file."""
        if self.file.checksum is not None:
            return self.target.with_name(f"{self.target.name}.part")
        host = hashlib.sha256(url.encode()).hexdigest()[:8]
        return self.target.with_name(f"{self.target.name}.{host}.part")

    def _wrong(self, part: Path) -> str:
        """As `what_is_wrong`, of a part that isn't under its final name yet."""
        if not part.exists():
            return "has no bytes"
        if self.file.checksum is not None:
            return what_is_wrong(self.file, part)
        first = (remembered(self.target) or {}).get(self.target)
        if first is not None and file_sum(part, "sha256") != first:
            return f"isn't what came the first time (remove {record_of(self.target)} if a change is expected)"
        return what_is_wrong(self.file, part)

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
            if response.is_redirect:
                return
            if self.file.checksum is None and url.startswith("https:") and response.url.startswith("http:"):
                raise _RefusedError(f"leads to {response.url}, where anybody on the way can change the bytes")
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
        )(url, _Limited(out, _LARGEST if self.file.size is None else self.file.size), pooch)


@dataclass(frozen=True)
class _Limited:
    """A file that takes no more than `limit` bytes: a host may send for ever."""

    out: BinaryIO
    limit: int

    def write(self, block: bytes) -> None:
        """Append, where there is room for it."""
        if self.out.seek(0, 2) + len(block) > self.limit:
            raise _WrongFileError(f"has more than {self.limit} bytes")
        self.out.write(block)

    def flush(self) -> None:
        """To the disk."""
        self.out.flush()


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
        judged = _RefusedError(f"answered {code} {error.response.reason}")
    return judged


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
