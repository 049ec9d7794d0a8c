"""Being the ServerApp of a run: this process asks a local SuperLink for a run, and drives its Grid.

`flwr run` has the SuperLink start a process for the ServerApp. In a rehearsal the command itself is that process, so
its progress, its errors and Ctrl-C are those of the simulator. Only a SuperLink of this machine hands
its ServerApp out.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import FederationError
from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.rehearsal.deployment import START_PATIENCE

if TYPE_CHECKING:
    from flwr.app import Message

#: Seconds between questions for the ServerApp, and that it may take to be handed out.
_PAUSE, _HANDOUT_PATIENCE = 0.05, 30.0
#: Seconds between attempts of a call, and that a SuperLink may be away: one that is started again needs some more than
#: its start.
_RETRY_PAUSE, _RETRY_PATIENCE = 0.25, 1.5 * START_PATIENCE


@contextlib.contextmanager
def grid_of_new_run(where: str | Access, files: Mapping[str, bytes], bell: Path | None = None) -> Iterator[Any]:
    """The Grid of a new run of the app in `files`.

    Args:
        where: address of a rehearsal's SuperLink, or how to speak to one that asks who is there.
        files: of the app, see `app_files`.
        bell: a file to touch when messages were sent, see `Deployment.bell`.

    Yields:
        The Grid, alive until the block is left.
    """
    _quiet()
    import httpx  # noqa: PLC0415
    from flwr.common.constant import SubStatus  # noqa: PLC0415
    from flwr.common.serde import run_from_proto  # noqa: PLC0415
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest  # noqa: PLC0415
    from flwr.supercore.heartbeat import HeartbeatSender  # noqa: PLC0415
    from flwr.supercore.task_identity import TaskIdentity  # noqa: PLC0415
    from flwr.superlink.grid import HttpGrid  # noqa: PLC0415

    class NotifyingGrid(HttpGrid):
        """A Grid that tells the nodes of this machine when there are messages for them."""

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            sent = super().push_messages(messages)
            if bell is not None:
                bell.touch()
            return sent

    access = Access(where) if isinstance(where, str) else where
    grid = NotifyingGrid(
        access.address,
        access.certificate is None,
        access.certificate,
        token=_task_of(access, _start_run(access, files)),
    )
    grid._retry_invoker = _retrying()
    got = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = got.task_id, got.run.run_id, got.context.node_id
    grid.set_run(run_from_proto(got.run))
    heart = HeartbeatSender(_heartbeat(grid))
    heart.start()
    status = SubStatus.FAILED
    try:
        yield grid
        status = SubStatus.COMPLETED
    finally:
        grid._retry_invoker.should_giveup = lambda error: True
        with contextlib.suppress(httpx.HTTPError):
            grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
        heart.stop()
        grid.close()


def _start_run(access: Access, files: Mapping[str, bytes]) -> int:
    from flwr.cli.build import build_fab_from_files  # noqa: PLC0415
    from flwr.common.serde import fab_to_proto  # noqa: PLC0415
    from flwr.proto.control_pb2 import StartRunRequest  # noqa: PLC0415
    from flwr.supercore.fab import Fab  # noqa: PLC0415

    content = build_fab_from_files(dict(files))[0]
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    with access.control() as client:
        answer = _started().invoke(client.StartRun, StartRunRequest(fab=fab_to_proto(fab)))
    if not answer.HasField("run_id"):
        raise FederationError(f"the SuperLink at {access.address} did not start a run; its log says why")
    return int(answer.run_id)


def _task_of(access: Access, run: int) -> str:
    """Take the run's ServerApp over, and return the token that says so."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest  # noqa: PLC0415
    from flwr.supercore.constant import TaskType  # noqa: PLC0415

    client = access.runtime()
    until = time.monotonic() + _HANDOUT_PATIENCE
    try:
        while time.monotonic() < until:
            wanted = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
            got = _started().invoke(client.AcquireTask, wanted)
            if got.HasField("task") and got.task.run_id == run:
                return str(got.token)
            time.sleep(_PAUSE)
    finally:
        client.close()
    raise FederationError(
        f"the SuperLink at {access.address} did not hand out run {run}; another process may have taken it"
    )


def _heartbeat(grid: Any) -> Any:
    """Tell the SuperLink that we live; what it answers is for the next call on the Grid to find out."""
    import httpx  # noqa: PLC0415
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest  # noqa: PLC0415

    def beat() -> bool:
        try:
            grid._runtime_client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except httpx.HTTPError:
            return False
        return True

    return beat


def _retrying() -> Any:
    """Try again while the SuperLink is away; Flower's own way never gives up, and answers a refusal with SIGINT.

    A SuperLink whose database is locked for some seconds says 500. Every call of a Grid may come twice: messages and
    their parts are known by their content, and at worst a reply is lost, as if its node had failed or been silent.
    """
    import httpx  # noqa: PLC0415

    return _trying(_RETRY_PATIENCE, httpx.TransportError, httpx.HTTPStatusError)


def _started() -> Any:
    """Try again while the SuperLink is unwell, as in its first seconds; one that is not there is not waited for.

    A run that was started in spite of a 500 has no ServerApp, and nobody answers in it.
    """
    import httpx  # noqa: PLC0415

    return _trying(_HANDOUT_PATIENCE, httpx.HTTPStatusError)


def _trying(seconds: float, *errors: type[Exception]) -> Any:
    import httpx  # noqa: PLC0415
    from flwr.supercore.retry import RetryInvoker, constant  # noqa: PLC0415

    from holdfast.integrations.flower.nodes.endurance import is_passing  # noqa: PLC0415

    def final(error: Exception) -> bool:
        return isinstance(error, httpx.HTTPStatusError) and not is_passing(error)

    return RetryInvoker(
        wait_gen_factory=lambda: constant(_RETRY_PAUSE),
        recoverable_exceptions=errors,
        max_tries=None,
        max_time=seconds,
        should_giveup=final,
        jitter=None,
    )


def _quiet() -> None:
    """No telemetry, no files in the user's home, no log lines between those of the command."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    os.environ.setdefault("FLWR_HOME", tempfile.mkdtemp(prefix="holdfast-flwr-"))
    logging.getLogger("flwr").setLevel(logging.ERROR)
