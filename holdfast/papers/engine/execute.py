"""Runs cells for seeds in worker processes, and remembers what each gave.

Every cell and seed is computed on one thread in a spawned process, so results are the same however many run side by
side. An outcome is kept as a small JSON file named after what was asked for (kind, settings, seed, version, release of
torch); a run that was stopped, by Ctrl-C or a kill, continues where it was. A cell that fails, or whose process dies,
is reported and the others go on. What is not part of the key: the data files, and the code, whose every change golden
cells are there to notice.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from holdfast.errors import CheckpointError, ConfigError
from holdfast.files import write_atomically
from holdfast.papers.engine.experiment import Cell
from holdfast.papers.engine.kinds import digest, function_of, key_of
from holdfast.papers.engine.worker import checked, work
from holdfast.provenance import git_commit, machine, uncommitted_changes

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class CellOutcome:
    """What became of one cell under one seed.

    Attributes:
        cell: name of the cell.
        seed: the seed.
        metrics: numbers by metric; None if it failed.
        seconds: how long it took, when it was computed.
        cached: whether it was computed earlier.
        error: what went wrong, in a sentence; None if nothing did.
        origin: commit, date, versions and machine of the computation.
    """

    cell: str
    seed: int
    metrics: Mapping[str, float] | None
    seconds: float
    cached: bool = False
    error: str | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Task:
    cell: Cell
    seed: int
    key: Mapping[str, Any]


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: _Task
    started: float


def default_cache() -> Path:
    """Where outcomes are kept: ``cells`` below the environment's HOLDFAST_CACHE, else below ``~/.cache/holdfast``."""
    return Path(os.environ.get("HOLDFAST_CACHE") or "~/.cache/holdfast").expanduser() / "cells"


def origin_now() -> dict[str, Any]:
    """Where a computation of this moment comes from."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"commit": git_commit(), "date": date, "uncommitted_changes": uncommitted_changes(), **machine()}


def execute(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    environment: Mapping[str, str] | None = None,
    listener: Callable[[CellOutcome], None] | None = None,
) -> tuple[CellOutcome, ...]:
    """Run every cell under every seed, or those of them that it asks for.

    Args:
        cells: what to compute.
        seeds: under which seeds.
        cache: folder of the outcomes, see `default_cache`.
        jobs: how many processes at a time; by default as many as there are cores.
        fresh: compute everything, also what is cached.
        environment: variables that the workers get, such as HOLDFAST_DATA; not part of the key.
        listener: called with each outcome as it comes, cached ones first.

    Returns:
        The outcomes, by cell and then seed. Ctrl-C ends the workers and raises KeyboardInterrupt; what was finished by
        then is in the cache.

    Raises:
        ConfigError: if a cell's function can't be imported or the cache can't be written to.
    """
    folder = cache or default_cache()
    _prepare(folder)
    origin = origin_now()
    tasks = [_Task(cell, seed, _key(cell, seed)) for cell in cells for seed in cell.seeds_of(seeds)]
    for kind in {cell.kind for cell in cells}:
        function_of(kind)
    outcomes: dict[tuple[str, int], CellOutcome] = {}

    def settle(outcome: CellOutcome) -> None:
        outcomes[outcome.cell, outcome.seed] = outcome
        if listener is not None:
            listener(outcome)

    missing = []
    for task in tasks:
        known = None if fresh else _recall(folder, task)
        if known is None:
            missing.append(task)
        else:
            settle(known)
    count = min(jobs or os.cpu_count() or 1, len(missing))
    for task, computed in _compute(missing, count, dict(environment or {})):
        outcome = replace(computed, origin=origin)
        if outcome.error is None:
            _remember(folder, task, outcome)
        settle(outcome)
    return tuple(outcomes[task.cell.name, task.seed] for task in tasks)


# ------------------------------------------------------------------------------------------------------- the cache


def _key(cell: Cell, seed: int) -> dict[str, Any]:
    """A measurement by its stable names; another release of torch draws and rounds differently."""
    return {"cell": key_of(cell), "version": cell.version, "seed": seed, "torch": _torch_release()}


@cache
def _torch_release() -> str:
    return metadata.version("torch")


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the cache {folder} can't be made ({error.strerror}); set HOLDFAST_CACHE to a folder of yours"
        ) from error


def _file(folder: Path, task: _Task) -> Path:
    return folder / f"{digest(task.key)}.json"


def _recall(folder: Path, task: _Task) -> CellOutcome | None:
    """What is kept of a task, or None; a file that can't be understood is as good as none."""
    file = _file(folder, task)
    try:
        stored = json.loads(file.read_bytes())
        if stored["key"] != task.key:
            return None
        metrics, origin = checked(stored["metrics"]), dict(stored["origin"])
        return CellOutcome(task.cell.name, task.seed, metrics, float(stored["seconds"]), cached=True, origin=origin)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.info("%s can't be read (%s) and is computed again", file, error)
        return None


def is_outcome(file: Path) -> bool:
    """Whether a file is what a finished cell left: whole, with finite metrics, under the name of what it was asked."""
    try:
        stored = json.loads(file.read_bytes())
        checked(stored["metrics"])
        return file.stem == digest(stored["key"]) and float(stored["seconds"]) >= 0 and bool(dict(stored["origin"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError):
        return False


def _remember(folder: Path, task: _Task, outcome: CellOutcome) -> None:
    stored = {
        "key": task.key,
        "metrics": outcome.metrics,
        "seconds": outcome.seconds,
        "origin": dict(outcome.origin),
    }
    try:
        write_atomically(_file(folder, task), json.dumps(stored, indent=1).encode())
    except CheckpointError as error:
        _log.warning("%s under seed %d will be computed again next time: %s", outcome.cell, outcome.seed, error)


# ----------------------------------------------------------------------------------------------------- the workers


def _compute(tasks: Sequence[_Task], jobs: int, environment: dict[str, str]) -> Iterator[tuple[_Task, CellOutcome]]:
    """The outcomes in the order in which they come; a worker takes the next task when it has finished one."""
    waiting = deque(tasks)
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_start(waiting.popleft(), environment))
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                task, outcome = worker.task, _receive(worker)
                if outcome is None:
                    outcome = _death(worker)
                    workers.remove(worker)
                elif waiting:
                    _assign(worker, waiting.popleft())
                else:
                    workers.remove(worker)
                    _stop([worker])
                yield task, outcome
    finally:
        _stop(workers)


def _start(task: _Task, environment: dict[str, str]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    # Not daemonic: a cell may have workers of its own.
    process = context.Process(target=work, args=(theirs, environment), name="holdfast-cell")
    resource_tracker.ensure_running()  # or its first start would lift the mask below
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:  # a child that Ctrl-C meets before it ignores it would print a traceback
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
    worker = _Worker(process, ours, task, time.perf_counter())
    _assign(worker, task)
    return worker


def _assign(worker: _Worker, task: _Task) -> None:
    worker.task, worker.started = task, time.perf_counter()
    with suppress(BrokenPipeError):  # it died; the next `wait` finds out
        worker.pipe.send((task.cell.kind, dict(task.cell.settings), task.seed))


def _receive(worker: _Worker) -> CellOutcome | None:
    """The worker's answer, or None if it is dead."""
    try:
        metrics, seconds, error, trace = worker.pipe.recv()
    except (EOFError, OSError):
        return None
    if trace:
        _log.error("%s under seed %d failed:\n%s", worker.task.cell.name, worker.task.seed, trace.rstrip())
    return CellOutcome(worker.task.cell.name, worker.task.seed, metrics, seconds, error=error)


def _death(worker: _Worker) -> CellOutcome:
    seconds = time.perf_counter() - worker.started
    _stop([worker])
    code = worker.process.exitcode or 0
    how = f"was killed by signal {-code}, perhaps for want of memory" if code < 0 else f"ended with code {code}"
    return CellOutcome(worker.task.cell.name, worker.task.seed, None, seconds, error=f"its process {how}")


def _stop(workers: Sequence[_Worker]) -> None:
    """End workers and whatever they started, whether they are idle, busy or dead."""
    for worker in workers:
        worker.pipe.close()
        _signal(worker.process, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        _signal(worker.process, signal.SIGKILL)
        worker.process.join()


def _signal(process: SpawnProcess, number: signal.Signals) -> None:
    if process.pid is None or not process.is_alive():
        return
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # it has no group of its own yet
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
