"""``metrics.jsonl``: one event per line, and the only place where a run's history is kept.

It is the one file of a run that is appended to. A checkpoint remembers how long it was and the SHA-256 of that part
(`MetricsMark`); a run that goes on cuts the file back to there, so that what happened after the checkpoint is told
once. A file that is not what the checkpoint saw is refused: it is never extended, and never taken for another's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from holdfast.errors import CheckpointError
from holdfast.files import add_to_digest
from holdfast.training.events import Event

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetricsMark:
    """How far the file had been written when a checkpoint was made.

    Attributes:
        size: in bytes.
        sha256: of those bytes; None of a checkpoint made before they were looked at.
    """

    size: int
    sha256: str | None = None

    @classmethod
    def of(cls, saved: Any) -> MetricsMark:
        """What a checkpoint holds: a mark, or a size alone, as older ones do.

        Raises:
            CheckpointError: if it is neither.
        """
        values = saved if isinstance(saved, Mapping) else {"size": saved}
        size, digest = values.get("size"), values.get("sha256")
        if not isinstance(size, int) or size < 0 or not isinstance(digest, (str, type(None))):
            raise CheckpointError(f"the checkpoint says {saved!r:.80} of metrics.jsonl; restore it from a copy")
        return cls(size, digest)

    def to_json(self) -> dict[str, Any]:
        """The mark as plain values, for a checkpoint."""
        return asdict(self)


class MetricsFile:
    """The events of a run.

    Args:
        path: the file; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._digest = hashlib.sha256()

    def append(self, event: Event) -> None:
        """Write an event; steps are too many to keep."""
        if event.kind == "step":
            return
        record = {"event": event.kind, "epoch": event.epoch, "step": event.step, **event.values}
        try:
            with self._open(os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                file.write(f"{json.dumps(record)}\n".encode())
        except OSError as error:
            raise CheckpointError(f"{self.path} can't be written ({error.strerror})") from error

    def events(self) -> list[dict[str, Any]]:
        """The events so far, oldest first; a half-written last line is left out.

        Raises:
            CheckpointError: if the file is damaged.
        """
        try:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        except OSError as error:
            raise CheckpointError(f"{self.path} can't be read ({error.strerror})") from error
        return [self._event(number, line) for number, line in enumerate(lines[:-1], 1)]

    def mark(self) -> MetricsMark:
        """How far the file has been written; what is marked is on the disk."""
        if not self.path.exists():
            return MetricsMark(0, hashlib.sha256().hexdigest())
        try:
            with self._open(os.O_RDONLY) as file:
                os.fsync(file.fileno())
                if os.fstat(file.fileno()).st_size < self._read:
                    self._read, self._digest = 0, hashlib.sha256()
                file.seek(self._read)
                self._read += add_to_digest(self._digest, file)  # only what came since the last mark
        except OSError as error:
            raise CheckpointError(f"{self.path} can't be read ({error.strerror})") from error
        return MetricsMark(self._read, self._digest.hexdigest())

    def cut(self, mark: MetricsMark) -> None:
        """Forget what was written after a checkpoint, which will be written again.

        Raises:
            CheckpointError: if the file is not what the checkpoint saw.
        """
        self._read, self._digest = 0, hashlib.sha256()
        if not self.path.exists():
            if mark.size:
                _log.warning("%s is missing: the epochs before this one will not be shown", self.path)
            return
        try:
            with self._open(os.O_RDWR) as file:
                self._check(file, mark)
                file.truncate(mark.size)
                os.fsync(file.fileno())
        except OSError as error:
            raise CheckpointError(f"{self.path} can't be written ({error.strerror})") from error

    def _check(self, file: IO[bytes], mark: MetricsMark) -> None:
        size, digest = os.fstat(file.fileno()).st_size, hashlib.sha256()
        if add_to_digest(digest, file, mark.size) < mark.size:
            difference = f"it has {size:,} bytes and had {mark.size:,}"
        elif mark.sha256 not in (None, digest.hexdigest()):
            difference = "its SHA-256 is another"
        else:
            return
        raise CheckpointError(
            f"{self.path} is not what the checkpoint saw ({difference}); restore it from a copy, or delete it to go on "
            "without what happened before the checkpoint"
        )

    def _open(self, flags: int) -> IO[bytes]:
        """The file, unbuffered so that a full disk is known at once; a link is not followed to what others own."""
        return os.fdopen(os.open(self.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), _MODES[flags], buffering=0)

    def _event(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            event = json.loads(line)
            if not isinstance(event["event"], str) or not all(isinstance(event[key], int) for key in ("epoch", "step")):
                raise ValueError(f"event {event['event']!r:.60}")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CheckpointError(
                f"line {number} of {self.path} isn't an event ({error}); restore the file from a copy of the run"
            ) from error
        return dict(event)


_MODES = {os.O_RDONLY: "rb", os.O_RDWR: "r+b", os.O_WRONLY | os.O_APPEND | os.O_CREAT: "ab"}
