"""Unpack tar and zip archives all or nothing, and never more than an honest archive holds.

Names that lead outside and devices are refused (tarfile's data filter; zipfile would quietly rename them), and so are
links, which no data set here has. So are bombs: archives of more than 100 times their own size, of folders in folders
in folders, of more files than their bytes can describe, with sparse files, or with headers of megabytes, each before
the disk or the memory is full of it. Texts compress by 10, bombs by 1000.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn

from holdfast.errors import DataError

_LARGEST_RATIO = 100  # of an archive's content to the archive
_SMALL = 1 << 24  # bytes that an archive may unpack to, however small it is
_DEEPEST = 32  # folders in folders
_FEW = 10_000  # members that an archive may have, however small it is
_BYTES_PER_MEMBER = 64  # that a member takes in the archive, at least, where there are more
_LARGEST_READ = 1 << 22  # tarfile reads contents in small blocks, so what is larger is a header

_OPENERS: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


def allowance(archive: Path) -> int:
    """How many bytes the content of an archive, or of a compressed file, may have."""
    return max(_SMALL, _LARGEST_RATIO * archive.stat().st_size)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive whose top folder is named like `folder`, all or nothing; what else is in it is left out.

    Args:
        archive: a zip file, or a tar file, compressed or not.
        folder: what appears.

    Returns:
        `folder`.

    Raises:
        DataError: if the archive is damaged, unsafe, not what was expected, or the disk is full.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder.parent) as work:
            extract = _extract_zip if zipfile.is_zipfile(archive) else _extract_tar
            extract(archive, Path(work))
            inner = Path(work) / folder.name
            if not inner.is_dir():
                raise DataError(f"{archive} has no folder {folder.name!r}; it isn't the archive that was expected")
            inner.replace(folder)
    except tarfile.FilterError as error:
        raise DataError(
            f"{archive} holds a member that would be written outside: {error}; it wasn't unpacked"
        ) from error
    except _DAMAGED as error:
        raise DataError(f"{archive} is a damaged archive ({error}); remove it and fetch it again") from error
    except OSError as error:
        raise DataError(f"{archive} can't be unpacked to {folder}: {error.strerror or error}") from error
    return folder


def zip_contents(archive: Path, suffix: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the members of a zip file that end in `suffix`, by name, without unpacking it.

    Raises:
        DataError: if it is damaged, or would take more memory than such an archive may.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            for member in sorted(_members(archive, file), key=lambda member: member.filename):
                if member.filename.endswith(suffix):
                    yield member.filename, file.read(member)
    except _DAMAGED as error:
        raise DataError(f"{archive} is a damaged archive ({error}); remove it and get it again") from error
    except OSError as error:
        raise DataError(f"{archive} can't be read: {error.strerror or error}") from error


# RuntimeError: a member with a password; NotImplementedError: a compression that zipfile doesn't know.
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    RuntimeError,
    UnicodeError,
    gzip.BadGzipFile,
)


def _extract_tar(archive: Path, work: Path) -> None:
    left, members = allowance(archive), _most_members(archive)

    def check(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
        nonlocal left, members
        left, members = left - member.size, members - 1
        if left < 0:
            _refuse_size(archive)
        if members < 0:
            _refuse(archive, "holds more files than its size can describe")
        if member.issparse():
            _refuse(archive, f"holds the sparse file {_short(member.name)}")
        if member.issym() or member.islnk():  # the data filter of older Pythons can be led outside by long chains
            _refuse(archive, f"holds the link {_short(member.name)}, which may lead outside")
        _check_depth(archive, member.name)
        return tarfile.data_filter(member, place)

    with _decompressed(archive) as stream, tarfile.open(fileobj=_Bounded(archive, stream), mode="r:") as tar:
        tar.extractall(work, filter=check)  # noqa: S202 - by tarfile's data filter


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        start = file.read(8)
    for magic, opener in _OPENERS.items():
        if start.startswith(magic):
            decompressed: IO[bytes] = opener(archive)
            return decompressed
    return archive.open("rb")


class _Bounded(io.RawIOBase):
    """What comes out of a decompressor, until it is more than an honest archive holds.

    The filter sees a member only after tarfile has read its headers, which may be as long as they like.
    """

    def __init__(self, archive: Path, stream: IO[bytes]) -> None:
        self.archive, self.stream = archive, stream
        self.limit = 2 * allowance(archive)  # of small files, headers are the larger half

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _LARGEST_READ:
            _refuse(self.archive, "has a header of megabytes")
        block = self.stream.read(size)
        if self.stream.tell() > self.limit:
            _refuse_size(self.archive)
        return block

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if offset > self.limit:
            _refuse_size(self.archive)
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()


def _extract_zip(archive: Path, work: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for member in _members(archive, file):
            target = work / member.filename
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)


def _members(archive: Path, file: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """What is in a zip file, if that can be unpacked: zipfile gives of a member no more than its stated size."""
    members = file.infolist()
    if sum(member.file_size for member in members) > allowance(archive):
        _refuse_size(archive)
    if len(members) > _most_members(archive):
        _refuse(archive, "holds more files than its size can describe")
    for member in members:
        path = PurePosixPath(member.filename)
        if not path.parts or path.is_absolute() or {"..", "\\", ":"} & {*path.parts, *member.filename}:
            _refuse(archive, f"holds a member that would be written outside: {_short(member.filename)}")
        _check_depth(archive, member.filename)
    return members


def _most_members(archive: Path) -> int:
    return max(_FEW, archive.stat().st_size // _BYTES_PER_MEMBER)


def _check_depth(archive: Path, name: str) -> None:
    if name.count("/") > _DEEPEST:
        _refuse(archive, f"holds folders in folders more than {_DEEPEST} deep")


def _refuse_size(archive: Path) -> NoReturn:
    _refuse(archive, f"unpacks to more than {_LARGEST_RATIO} times its own size")


def _refuse(archive: Path, why: str) -> NoReturn:
    raise DataError(f"{archive} {why}; it wasn't unpacked: compare it with what its publisher describes")


def _short(name: str, most: int = 60) -> str:
    return repr(name if len(name) <= most else name[:most] + "...")


def read_gzip(path: Path, header: int, promised: Callable[[bytes], int]) -> bytes:
    """The content of a gzip file whose first bytes say how long it is, and no more of it than that.

    Args:
        path: the file.
        header: how many bytes say it.
        promised: how long the content is, header and all, as they say.

    Returns:
        The content; it may be shorter or, by a byte, longer than promised.

    Raises:
        DataError: if more is promised than such a file may hold.
    """
    with gzip.open(path) as file:
        start = file.read(header)
        wanted = promised(start)
        if wanted > allowance(path):
            raise DataError(
                f"{path} promises {wanted} bytes, more than {_LARGEST_RATIO} times its own size; remove it and fetch "
                "it again"
            )
        return start + file.read(max(wanted + 1 - len(start), 0))


def content_sum(path: Path) -> str:
    """The MD5 sum of a file, or of what it holds where it is a gzip file.

    Raises:
        DataError: if it is damaged, or holds more than such a file may.
    """
    digest, limit = hashlib.md5(usedforsecurity=False), allowance(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                limit -= len(block)
                if limit < 0:
                    raise DataError(f"{path} holds more than {_LARGEST_RATIO} times its own size; fetch it again")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}); remove it and fetch it again") from error
    return digest.hexdigest()
