"""A SuperLink and its SuperNodes as processes of this machine, for a rehearsal: started, killed, stopped together.

Everything listens on loopback addresses only and lives in one folder: logs, Flower's own files, the SuperLink's
database, and below ``nodes`` what each node keeps. Nothing outlives `stop`, nor the end of this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.errors import FederationError, MissingDependencyError
from holdfast.integrations.flower.nodes.ids import share_of

if TYPE_CHECKING:
    from holdfast.integrations.flower.roster import Roster

_HOST = "127.0.0.1"
#: Seconds that a SuperLink has to start.
START_PATIENCE = 60.0


def require_flower() -> None:
    """Say which extra is missing, if Flower is.

    Raises:
        MissingDependencyError: if it is.
    """
    try:
        import flwr  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            "a federation on Flower needs the package flwr, for Python 3.11 or newer; install holdfast[flower]"
        ) from error


class Deployment:
    """A SuperLink and SuperNodes on this machine.

    Args:
        folder: where logs and state are kept; made where it is missing.
        preload: modules that nodes will need, imported once for all of them.
        lasting: whether the SuperLink keeps a database, so that it can be killed and started again in the middle of a
            run; without, it answers in a third of the time.
    """

    def __init__(self, folder: Path, preload: Sequence[str] = (), *, lasting: bool = False) -> None:
        require_flower()
        self.folder, self._preload, self._lasting = folder, list(preload), lasting
        self.port = _free_port()
        self._launcher: subprocess.Popen[str] | None = None
        self._link: int | None = None
        self._nodes: dict[int, int] = {}
        self._configs: dict[int, Mapping[str, str]] = {}

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{_HOST}:{self.port}"

    @property
    def bell(self) -> Path:
        """A file that is touched when there are messages for nodes."""
        return self.folder / "bell"

    def __enter__(self) -> Deployment:
        try:
            self._start_launcher()
            for file in self.folder.glob("superlink.db*"):
                file.unlink()
            self.start_link()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---------------------------------------------------------------------------------------------- processes

    def start_link(self) -> None:
        """Start the SuperLink, or start it again on the database of the last one."""
        words = ["flower-superlink", "--insecure", "--isolation", "process", "--host", _HOST, "--port", str(self.port)]
        words += ["--disable-runtime-dependency-installation"]
        words += ["--database", str(self.folder / "superlink.db")] if self._lasting else []
        self._link = self._start("superlink", {"arguments": words})
        self._wait_for(self.port, self._link, "superlink")

    def kill_link(self) -> None:
        """End the SuperLink without a warning."""
        assert self._link is not None
        _kill(self._link)
        self._link = None

    def start_node(self, number: int, config: Mapping[str, str] | None = None) -> None:
        """Start SuperNode `number`, or start it again after `kill_node`.

        Args:
            number: from 0.
            config: of the node; its ``state`` folder is added. The one it had by default.
        """
        if config is not None:
            self._configs[number] = config
        state = self.node_folder(number)
        state.mkdir(parents=True, exist_ok=True)
        self._token(number)
        port = _free_port()
        values = {"state": str(state), **self._configs[number]}
        words = ["flower-supernode", "--insecure", "--isolation", "process", "--host", _HOST, "--port", str(port)]
        words += ["--superlink", self.address]
        words += ["--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())]
        self._nodes[number] = self._start(f"node-{number}", {"arguments": words, "runtime": f"{_HOST}:{port}"})

    def kill_node(self, number: int) -> None:
        """End a SuperNode and all that runs for it, without a warning."""
        _kill(self._nodes.pop(number))

    def node_folder(self, number: int) -> Path:
        """What node `number` keeps."""
        return self.folder / "nodes" / str(number)

    def roster(self, clients: int, most_examples: int) -> Roster:
        """The roster of the nodes that were started, which share so many clients evenly."""
        from holdfast.integrations.flower.roster import even_roster, token_of  # noqa: PLC0415

        nodes = sorted(self._configs)
        shares = [len(share_of(f"{place}/{len(nodes)}", clients)) for place in range(len(nodes))]
        return even_roster([token_of(self._token(node)) for node in nodes], shares, most_examples)

    def _token(self, number: int) -> str:
        """The secret by which the roster knows a node; written where the node keeps its things."""
        file = self.node_folder(number) / "token"
        if not file.exists():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(secrets.token_hex(16))
        return file.read_text()

    def ended(self) -> list[str]:
        """Names of processes that ended by themselves."""
        dead = set(self._ask({"do": "look"})["dead"])
        dead_parts = ["superlink"] if self._link in dead else []
        return dead_parts + [f"node-{number}" for number, pid in self._nodes.items() if pid in dead]

    def stop(self) -> None:
        """End everything: first politely, then not."""
        groups = [*self._nodes.values(), *([] if self._link is None else [self._link])]
        for pid in groups:
            _kill(pid)
        self._nodes, self._link = {}, None
        if self._launcher is not None:
            assert self._launcher.stdin is not None and self._launcher.stdout is not None
            with contextlib.suppress(OSError):
                self._launcher.stdin.close()
            try:
                self._launcher.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._launcher.kill()
                self._launcher.wait()
            self._launcher.stdout.close()
            self._launcher = None

    # ---------------------------------------------------------------------------------------------- the launcher

    def _start_launcher(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        with (self.folder / "launcher.log").open("ab") as log:
            self._launcher = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "holdfast.integrations.flower.rehearsal.launcher", *self._preload],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **quiet},
                start_new_session=True,
            )
        self._read("launcher")

    def _start(self, name: str, order: dict[str, Any]) -> int:
        home = self.folder / "flwr" / name
        home.mkdir(parents=True, exist_ok=True)
        request = {"do": "start", "log": str(self._log(name)), "home": str(home), "bell": str(self.bell), **order}
        return int(self._ask(request)["pid"])

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._launcher is not None and self._launcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._launcher.stdin.write(json.dumps(order) + "\n")
            self._launcher.stdin.flush()
        return self._read("launcher")

    def _read(self, name: str) -> dict[str, Any]:
        assert self._launcher is not None and self._launcher.stdout is not None
        line = self._launcher.stdout.readline()
        if not line:
            raise FederationError(f"Flower could not be started: {self._last_words(name)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _wait_for(self, port: int, pid: int, name: str) -> None:
        until = time.monotonic() + START_PATIENCE
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
                return
            if pid in self._ask({"do": "look"})["dead"]:
                break
            time.sleep(0.05)
        raise FederationError(f"the {name} did not start: {self._last_words(name)}")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _last_words(self, name: str) -> str:
        log = self._log(name)
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return f"{lines[-1]} (the rest is in {log})" if lines else f"see {log}"


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return int(listener.getsockname()[1])
