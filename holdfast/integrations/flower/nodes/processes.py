"""The processes of a node: a SuperNode, and beside it an executor that has imported everything once.

Flower starts a fresh Python for every message, and importing torch in it takes longer than most rounds. An executor
(Flower's ``--isolation process``) forks a process per message instead, which costs next to nothing. The two tell each
other through pipes when there is something to do. If one of them ends, so does the other.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from flwr.app import Context, Message

    from holdfast.integrations.flower.operation.access import Access

#: Seconds between looks at the bell, what a SuperNode's idle wait is longer than, and the first wait after a task.
_GLANCE, _IDLE, _SOON = 0.02, 1.0, 0.25


def be(work: Callable[[], object]) -> None:
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


def be_supernode(waits: Waits) -> None:
    """Be a SuperNode, with the arguments in ``sys.argv``."""
    from flwr.supernode import start_client_internal  # noqa: PLC0415
    from flwr.supernode.cli import flower_supernode  # noqa: PLC0415

    from holdfast.integrations.flower.nodes.endurance import endure  # noqa: PLC0415

    endure()
    vars(start_client_internal)["time"] = waits
    flower_supernode()


class Waits:
    """The clock that a SuperNode waits by: it waits until there is a reason not to, and at most as long as it would.

    On a network nobody rings a bell. There the next order is likely to come soon after the last, so the first wait
    after a task is short, and each is twice the one before.

    Args:
        work: the end of a pipe to say that there is a task.
        done: the end of a pipe where it is said that one is over.
        bell: a file that is touched when there are messages, where server and node are on one machine.
    """

    def __init__(self, work: int, done: int, bell: Path | None = None) -> None:
        self._work, self._done, self._bell, self._heard = work, done, bell, 0
        self._next = _SOON

    def sleep(self, seconds: float) -> None:
        """Wait for messages, where the wait is a long one, and for the end of a task otherwise."""
        if seconds < _IDLE:
            self._next = _SOON
            os.write(self._work, b".")
            if select.select([self._done], [], [], seconds)[0] and not os.read(self._done, 1):
                raise RuntimeError("the executor of this node has ended")
            return
        if self._bell is None:
            time.sleep(min(self._next, seconds))
            self._next *= 2
            return
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._rung() == self._heard:
            time.sleep(_GLANCE)
        self._heard = self._rung()

    def _rung(self) -> int:
        return self._bell.stat().st_mtime_ns if self._bell is not None and self._bell.exists() else 0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def execute(access: Access, work: int, done: int, run: Callable[[Access, str], None]) -> None:
    """Run what a SuperNode has to run, a forked process per task, until the SuperNode is gone.

    Args:
        access: to the SuperNode's Runtime API.
        work: the end of a pipe where it is said that there is a task; closed when the SuperNode has ended.
        done: the end of a pipe to say that a task is over.
        run: what to do with a task, given the token that opens it.
    """
    from flwr.proto.runtime_pb2 import AcquireTaskRequest  # noqa: PLC0415
    from flwr.supercore.constant import TaskType  # noqa: PLC0415

    client = access.runtime()
    while os.read(work, 1):
        kinds = [TaskType.CLIENT_APP, TaskType.AGENT_APP]
        got = client.AcquireTask(AcquireTaskRequest(supported_task_types=kinds))
        if got.HasField("task") and got.token:
            pid = os.fork()
            if pid == 0:
                be(functools.partial(run, access, got.token))
            status = os.waitpid(pid, 0)[1]
            if os.WIFSIGNALED(status):  # out of memory, perhaps: no reply will come, so start afresh
                raise HoldfastError(f"a message's process was ended by signal {os.WTERMSIG(status)}")
            os.write(done, b".")


def answer_task(access: Access, token: str, answer: Callable[[Message, Context], Message]) -> None:
    """Answer a task with code of this machine, whatever app the server has sent: none of that is unpacked.

    What goes wrong is told the server as a sentence where it is one of ours, and by its kind otherwise: the texts of
    other errors may hold paths or values of the node's data.
    """
    from flwr.app import Error, Message  # noqa: PLC0415
    from flwr.common.constant import ErrorCode, SubStatus  # noqa: PLC0415
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http  # noqa: PLC0415
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output  # noqa: PLC0415

    client = _task_client(access, token)
    heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heart.start()
    message, context, _, _ = pull_task_input(client)
    status, details = SubStatus.COMPLETED, ""
    try:
        reply = answer(message, context)
    except Exception as error:
        import traceback  # noqa: PLC0415

        traceback.print_exc()
        status, details = SubStatus.FAILED, str(error) if isinstance(error, HoldfastError) else type(error).__name__
        reply = Message(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=details), reply_to=message)
    push_message(client, reply, context)
    push_task_output(client, context, status, details)
    heart.stop()
    client.close()


def _task_client(access: Access, token: str) -> Any:
    from flwr.supercore.interceptors import (  # noqa: PLC0415
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
    )
    from flwr.supercore.retry import make_simple_http_retry_invoker  # noqa: PLC0415
    from flwr.supercore.runtime import RuntimeHttpClient  # noqa: PLC0415
    from flwr.supercore.runtime.tracing import RuntimeTracingInterceptor  # noqa: PLC0415

    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    return RuntimeHttpClient.from_server_address(
        server_address=access.address,
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeTracingInterceptor(), version, RuntimeTokenHttpInterceptor(token)],
        retry_invoker=make_simple_http_retry_invoker(),
    )
