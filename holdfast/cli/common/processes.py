"""Several processes for one command: starting them, joining those that a launcher has started, and their end.

``--processes`` starts copies of the command on this machine, which find each other through a file and talk over the
loopback interface. The first shows and writes; of the others only what they die of is shown. When one ends before its
time, the others notice by themselves or are stopped, and nobody waits for it. torchrun and `accelerate launch` do the
same for several machines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from holdfast.errors import EXIT_CODE, ConfigError, ProcessError
from holdfast.training.interruption import SIGNALS

if TYPE_CHECKING:
    from holdfast.training.ranks import Ranks

_GRACE = 20.0  # seconds in which processes may end by themselves after one of them did
_STORE, _LIFELINE = "HOLDFAST_STORE", "HOLDFAST_LIFELINE"
_RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_COUNT = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def launched() -> int:
    """How many processes a launcher has started, of which this is one; 1 without a launcher."""
    return _number(_COUNT, 1)


def check_count(count: int) -> None:
    """Refuse a number of processes that makes no sense here.

    Raises:
        ConfigError: if it is below 1, or a launcher has started another number.
    """
    if count < 1:
        raise ConfigError(f"processes is {count}; give at least 1")
    if count > 1 and launched() not in (1, count):
        raise ConfigError(
            f"--processes is {count} and a launcher has started {launched()} processes; leave --processes out"
        )


def launch(count: int, arguments: Sequence[str]) -> int:
    """Run a command as `count` processes of this machine.

    Args:
        count: how many.
        arguments: the command and its options.

    Returns:
        The exit code of the first process that failed, or 0.

    Raises:
        ProcessError: if one of them was ended by a signal that nobody here sent.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        read, write = os.pipe()
        processes = [_started(number, count, arguments, Path(folder), read) for number in range(count)]
        os.close(read)
        sent = list[int]()

        def forward(number: int, _: object) -> None:
            sent.append(number)
            for process in processes:
                with suppress(ProcessLookupError):
                    process.send_signal(number)

        before = {number: signal.signal(number, forward) for number in SIGNALS}
        try:
            first = _watched(processes)
        except KeyboardInterrupt:  # the terminal has told all of them
            sent.append(signal.SIGINT)
            first = _ended(processes, 0)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(write)
            _ended(processes, 0)
        return _verdict(processes, first, Path(folder), by_us=bool(sent))


@contextmanager
def joined_processes(device: str) -> Iterator[Ranks]:
    """The processes that a launcher has started, connected with each other inside the block.

    Args:
        device: where they compute, by name: GPUs talk through NCCL.

    Raises:
        ConfigError: if the launcher was asked for something that cuts models up.
    """
    from holdfast.training.ranks import ALONE, Ranks, lost_processes_named

    count, index = launched(), _number(_RANK, 0)
    if count == 1:
        yield ALONE
        return
    for variable, what in (("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")):
        if os.environ.get(variable, "").lower() in ("true", "1"):
            raise ConfigError(
                f"accelerate was told to use {what}, which cuts the model up over the processes, and policies look at "
                "whole models; launch without it"
            )
    import torch.distributed as dist

    _watch_lifeline()
    where = os.environ.get(_STORE, "env://")
    backend = "gloo" if device == "cpu" or not dist.is_nccl_available() else "cpu:gloo,cuda:nccl"
    with lost_processes_named(Ranks(index, count)):
        dist.init_process_group(backend, init_method=where, rank=index, world_size=count)
    try:
        yield Ranks.current()
    finally:
        dist.destroy_process_group()


def _started(number: int, count: int, arguments: Sequence[str], folder: Path, lifeline: int) -> subprocess.Popen[bytes]:
    environment = {
        "OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // count, 1)),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        **os.environ,
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(count),
        _STORE: f"file://{folder / 'store'}",
        _LIFELINE: str(lifeline),
    }
    errors: IO[bytes] | int = subprocess.PIPE if number == 0 else (folder / f"errors-{number}").open("wb")
    process = subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-m", "holdfast", *arguments],
        env=environment,
        stdout=None if number == 0 else subprocess.DEVNULL,
        stderr=errors,
        pass_fds=[lifeline],
    )
    if number == 0:
        threading.Thread(target=_copy, args=(process, folder / "errors-0"), daemon=True).start()
    return process


def _copy(process: subprocess.Popen[bytes], file: Path) -> None:
    """Show what the first process complains of, and remember it."""
    assert process.stderr is not None
    with file.open("wb") as kept:
        while piece := os.read(process.stderr.fileno(), 65536):
            kept.write(piece)
            kept.flush()
            sys.stderr.buffer.write(piece)
            sys.stderr.flush()


def _watched(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for the end of all; give the number of the one that failed first, else 0."""
    while True:
        codes = [process.poll() for process in processes]
        failed = next((number for number, code in enumerate(codes) if code), None)
        if failed is not None:
            return _ended(processes, failed)
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)


def _ended(processes: Sequence[subprocess.Popen[bytes]], failed: int) -> int:
    """Let them end by themselves for a while, then make them."""
    until = time.monotonic() + _GRACE
    for stop in (None, signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if stop is not None and process.poll() is None:
                process.send_signal(stop)
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.0))
        until = time.monotonic() + _GRACE / 4
    return failed


def _verdict(processes: Sequence[subprocess.Popen[bytes]], first: int, folder: Path, *, by_us: bool) -> int:
    codes = [process.returncode for process in processes]
    code = codes[first]
    if code < 0 and not by_us:
        raise ProcessError(
            f"process {first} of {len(processes)} was ended by {signal.Signals(-code).name}, so the others stopped; "
            "if there was not enough memory, take fewer processes; a run continues with --resume"
        )
    if by_us:
        return EXIT_CODE if EXIT_CODE in codes else 128 + signal.SIGINT
    said = (folder / f"errors-{first}").read_bytes() if first else b""
    if said and said not in (folder / "errors-0").read_bytes():
        sys.stderr.buffer.write(said)
        sys.stderr.flush()
    return int(code)


def _watch_lifeline() -> None:
    """When the launcher goes, however it goes, save and end: nobody would stop this process any more."""
    if (lifeline := os.environ.get(_LIFELINE)) is None:
        return

    def wait() -> None:
        with suppress(OSError):
            os.read(int(lifeline), 1)
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _number(names: Sequence[str], default: int) -> int:
    word = next((os.environ[name] for name in names if name in os.environ), str(default))
    try:
        return int(word)
    except ValueError as error:
        raise ConfigError(f"a launcher says {word!r} where a number of processes belongs; start again") from error
