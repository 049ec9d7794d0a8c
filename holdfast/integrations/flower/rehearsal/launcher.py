"""The processes of a rehearsal on one machine: forks of one process that has imported everything once.

Flower starts a fresh Python for every message, and importing torch in it takes longer than most rounds. Here a launcher
imports torch, holdfast and Flower, and forks what it is told to: a SuperLink, a SuperNode, and beside each SuperNode an
executor of its own (Flower's ``--isolation process``), which forks a process per message. Each SuperNode leads a
process group with all that belongs to it. When the launcher's input ends, so does everything it started.

On a network, SuperNodes look for messages every few seconds. Here the server rings a bell, which is a file it touches,
and a SuperNode and its executor tell each other through pipes when there is something to do, so that waiting costs
nothing and no time is lost.

Run as ``python -m holdfast.integrations.flower.rehearsal.launcher MODULE...``, with modules to import beforehand and
whose function ``warm_up``, where they have one, is called once; it reads a JSON object per line and answers with one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.integrations.flower.nodes.processes import Waits, be, be_supernode, execute
from holdfast.integrations.flower.operation.access import Access


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

    import holdfast.data.own.schema  # noqa: F401, PLC0415 - read from the charter by every message

    torch.set_num_threads(1)
    for module in modules:
        warm_up = getattr(importlib.import_module(module), "warm_up", None)
        if warm_up is not None:
            warm_up()
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
        be(lambda: _lead(order))
    return pid


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
            be(functools.partial(execute, Access(order["runtime"]), work[0], done[1], _run_task))
        os.close(work[0])
        be_supernode(Waits(work[1], done[0], Path(order["bell"])))


def _run_task(access: Access, token: str) -> None:
    """As Flower does: whatever app the server has sent, which on one machine is the user's own."""
    from flwr.supernode.runtime.run_clientapp import run_clientapp  # noqa: PLC0415

    run_clientapp(runtime_api_address=access.address, token=token, insecure=True, parent_pid=os.getppid())


if __name__ == "__main__":
    main(sys.argv[1:])
