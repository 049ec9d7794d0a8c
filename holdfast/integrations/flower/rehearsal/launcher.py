"""The processes of a rehearsal on one machine: forks of one process that has imported everything once.

Flower starts a fresh Python for every message, and importing torch in it takes longer than most rounds. Here a launcher
imports torch, holdfast and Flower, and forks what it is told to: a SuperLink, a SuperNode, and beside each SuperNode an
executor of its own (Flower's ``--isolation process``), which forks a process per message. Each SuperNode leads a
process group with all that belongs to it. When the launcher's input ends, so does everything it started.

On a network, SuperNodes look for messages every few seconds. Here the server rings a bell, which is a file it touches,
and a SuperNode and its executor tell each other through pipes when there is something to do, so that waiting costs
nothing and no time is lost.

Run as ``python -m holdfast.integrations.flower.rehearsal.launcher MODULE...``, with modules to import beforehand; it
reads a JSON object per line and answers with one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: Seconds between looks at the bell, and what a SuperNode's idle wait is longer than.
_GLANCE, _IDLE = 0.02, 1.0


def main(modules: Sequence[str]) -> None:
    """Answer orders until the input ends."""
    _import_everything(modules)
    started: set[int] = set()
    _answer({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "start":
            pid = _fork(order)
            started.add(pid)
            _answer({"pid": pid})
        else:
            started -= (dead := _dead(started))
            _answer({"dead": sorted(dead)})
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _import_everything(modules: Sequence[str]) -> None:
    import flwr.superlink.cli.flower_superlink  # noqa: PLC0415
    import flwr.superlink.main  # noqa: PLC0415
    import flwr.supernode.cli.flower_supernode  # noqa: PLC0415
    import flwr.supernode.main  # noqa: PLC0415
    import flwr.supernode.runtime.run_clientapp  # noqa: F401, PLC0415
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    for module in modules:
        importlib.import_module(module)
    gc.freeze()


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _dead(started: set[int]) -> set[int]:
    dead = set()
    for pid in started:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                dead.add(pid)
    return dead


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _be(lambda: _lead(order))
    return pid


def _be(work: Callable[[], None]) -> None:
    """Do `work` in a forked process and never return."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        import traceback  # noqa: PLC0415

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _lead(order: dict[str, Any]) -> None:
    """Lead a process group, write to a log, and run a command of Flower."""
    os.setsid()
    with Path(order["log"]).open("ab") as log, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["FLWR_HOME"] = order["home"]
    sys.argv = list(order["arguments"])
    if order["arguments"][0] == "flower-superlink":
        from flwr.superlink.cli import flower_superlink  # noqa: PLC0415

        flower_superlink()
    else:
        work, done = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(work[1])
            _be(functools.partial(_execute, order["runtime"], work[0], done[1]))
        os.close(work[0])
        _supernode(_Waits(Path(order["bell"]), work[1], done[0]))


def _supernode(waits: _Waits) -> None:
    from flwr.supernode import start_client_internal  # noqa: PLC0415
    from flwr.supernode.cli import flower_supernode  # noqa: PLC0415

    vars(start_client_internal)["time"] = waits
    flower_supernode()


class _Waits:
    """The clock that a SuperNode waits by: it waits until there is a reason not to, and at most as long as it would.

    Args:
        bell: a file that is touched when there are messages.
        work: the end of a pipe to say that there is a task.
        done: the end of a pipe where it is said that one is over.
    """

    def __init__(self, bell: Path, work: int, done: int) -> None:
        self._bell, self._work, self._done, self._heard = bell, work, done, 0

    def sleep(self, seconds: float) -> None:
        """Wait for messages, where the wait is a long one, and for the end of a task otherwise."""
        until = time.monotonic() + seconds
        if seconds < _IDLE:
            os.write(self._work, b".")
            if select.select([self._done], [], [], seconds)[0]:
                os.read(self._done, 1)
            return
        while time.monotonic() < until and self._rung() == self._heard:
            time.sleep(_GLANCE)
        self._heard = self._rung()

    def _rung(self) -> int:
        return self._bell.stat().st_mtime_ns if self._bell.exists() else 0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def _execute(runtime: str, work: int, done: int) -> None:
    """Run what a SuperNode has to run, a forked process per task, until the SuperNode is gone."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest  # noqa: PLC0415
    from flwr.supercore.constant import TaskType  # noqa: PLC0415

    client = _runtime_client(runtime)
    while os.read(work, 1):
        got = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if got.HasField("task") and got.token:
            pid = os.fork()
            if pid == 0:
                _be(functools.partial(_run_task, runtime, got.token))
            os.waitpid(pid, 0)
            os.write(done, b".")


def _runtime_client(runtime: str) -> Any:
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: PLC0415
    from flwr.supercore.runtime import RuntimeHttpClient  # noqa: PLC0415

    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
    return RuntimeHttpClient.from_server_address(
        server_address=runtime, insecure=True, root_certificates=None, interceptors=interceptors
    )


def _run_task(runtime: str, token: str) -> None:
    from flwr.supernode.runtime.run_clientapp import run_clientapp  # noqa: PLC0415

    run_clientapp(runtime_api_address=runtime, token=token, insecure=True, parent_pid=os.getppid())


if __name__ == "__main__":
    main(sys.argv[1:])
