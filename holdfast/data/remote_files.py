"""The files that a data set is made of: where each goes, where it comes from, and what it must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Told after every block: the file's path, the bytes that are there, the bytes expected (None where unknown).
Progress = Callable[[str, int, int | None], None]


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
        mirrors: other addresses, tried in this order after `url`.
        git_blob: what git calls its content, for a file of a repository without another sum.
        content_md5: the MD5 sum of what a compressed file holds, by which its uncompressed form (in `also`) is known,
            and one that somebody compressed anew.
        unchecked: why no sum of it is known, where none is.
    """

    path: str
    url: str | None = None
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    unpacks_to: str | None = None
    also: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    git_blob: str | None = None
    content_md5: str | None = None
    unchecked: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it comes from, in the order in which they are tried."""
        return () if self.url is None else (self.url, *self.mirrors)

    @property
    def checksum(self) -> str | None:
        """The sum that is compared, as ``algorithm:digest``; None where the file has none."""
        sums = {"sha256": self.sha256, "md5": self.md5, "git": self.git_blob}
        return next((f"{kind}:{digest}" for kind, digest in sums.items() if digest is not None), None)

    def found(self, root: Path) -> Path | None:
        """Where it is under `root`, in whichever accepted form; None where it is missing."""
        wanted = (root / path for path in (self.unpacks_to or self.path, *self.also))
        return next((path for path in wanted if path.exists()), None)
