"""SIGTERM and SIGUSR1 ask a training to save its state at the next step and to end.

Batch systems announce the end of a job: Slurm by SIGTERM, or by SIGUSR1 minutes before (``--signal=USR1@300``),
Kubernetes by SIGTERM. Inside `interruptible` a signal only leaves a note. A loop looks for it where its state is whole
(`Interruptions.requested`), saves, and raises `Interrupted`. Commands do this for you and end with `EXIT_CODE`, which
says that the run can be continued; in a program of your own put ``with interruptible():`` around `fit` or `federate`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from holdfast.errors import Interrupted

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Interruptions:
    """The signal that asked for the end, if one did."""

    def __init__(self) -> None:
        self._number: int | None = None

    def requested(self) -> int | None:
        """Number of the signal that asked for the end, or None; where several processes train, of this process."""
        return self._number

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Remember a signal. A second one changes nothing: schedulers and launchers both send theirs."""
        self._number = number

    def forget(self) -> None:
        """Nobody asks any more."""
        self._number = None


#: Of this process; signals are a process's, so there is one.
interruptions = Interruptions()


@contextmanager
def interruptible(*, at_once: bool = False) -> Iterator[Interruptions]:
    """Let SIGTERM and SIGUSR1 ask for the end instead of bringing it, until the block ends.

    Only the main thread can say what signals do; in another one nothing changes.

    Args:
        at_once: raise `Interrupted` where the signal comes, for work whose results on disk are whole at any time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield interruptions
        return
    before = {number: signal.signal(number, _raise if at_once else interruptions.note) for number in SIGNALS}
    try:
        yield interruptions
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        interruptions.forget()


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
