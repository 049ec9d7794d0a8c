"""The life of a process that computes cells, see `holdfast.papers.engine.execute`.

Importing this module imports neither torch nor NumPy: a cell that needs them finds the environment already set to one
thread, and one that doesn't starts at once.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from holdfast.errors import ConfigError, HoldfastError
from holdfast.papers.engine.kinds import function_of
from holdfast.primitives.memory import keep_freed_memory

#: Metrics or None, seconds, an error in a sentence or None, and a traceback where the error is the code's own.
Answer = tuple[dict[str, float] | None, float, str | None, str | None]

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def work(pipe: Connection, environment: Mapping[str, str]) -> None:
    """Answer every (kind, settings, seed) that comes through the pipe, until it is closed or the parent is gone.

    The process leads a group of its own, so that Ctrl-C reaches only its parent, which ends the whole group.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ.update(_ONE_THREAD | dict(environment))
    keep_freed_memory()
    if (torch := sys.modules.get("torch")) is not None:  # the parent's main module imports it before this line
        torch.set_num_threads(1)
    with suppress(EOFError, BrokenPipeError):
        while True:
            kind, settings, seed = pipe.recv()
            pipe.send(_attempt(kind, settings, seed))


def checked(metrics: Any) -> dict[str, float]:
    """Finite floats by name.

    Raises:
        ConfigError: if they aren't; it says what a cell's function has to return.
    """
    if not isinstance(metrics, Mapping) or not metrics:
        raise ConfigError(f"a cell's function returned {type(metrics).__name__}; it must return numbers by metric")
    for name, value in metrics.items():
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ConfigError(f"a cell's function returned {value!r} for {name!r}; metrics must be finite numbers")
    return {str(name): float(value) for name, value in metrics.items()}


def _attempt(kind: str, settings: Mapping[str, Any], seed: int) -> Answer:
    started = time.perf_counter()
    metrics, message, trace = None, None, None
    try:
        metrics = checked(function_of(kind)(settings=settings, seed=seed))
    except HoldfastError as error:
        message = str(error)
    except Exception as error:  # a cell runs any code, and the others must go on
        message, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    return metrics, time.perf_counter() - started, message, trace


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
