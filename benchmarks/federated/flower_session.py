"""One deployment of Flower on loopback, from start to stop: a SuperLink, SuperNodes, and a run of an app.

Run: ``python flower_session.py SESSION.json``. The file says which app, what the nodes are told, and which file changes
at the end of a round, where the app does not note the times itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HOST = "127.0.0.1"
BIN = Path(sys.executable).parent
PATIENCE = 60.0
LOOK = 0.05


@dataclass(frozen=True)
class Session:
    """What to start.

    Attributes:
        app: folder of the Flower app.
        out: folder for logs, and for ``record.json`` where the app writes none.
        nodes: the configuration of each SuperNode.
        run_config: given to `flwr run`.
        changes: a file that is written anew at the end of every round; empty where the app notes the times.
    """

    app: str
    out: str
    nodes: Sequence[Mapping[str, str | int]]
    run_config: Mapping[str, str]
    changes: str = ""

    def write(self) -> Path:
        """The session's file."""
        file = Path(self.out) / "session.json"
        file.write_text(json.dumps(asdict(self)))
        return file


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def said(config: Mapping[str, str | int]) -> str:
    """A configuration as Flower's commands take it."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())


def run(session: Session) -> int:
    """Start everything, wait for the run to end, stop everything."""
    out = Path(session.out)
    port = free_port()
    home = Path(os.environ["FLWR_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(f'[superlink.loop]\naddress = "{HOST}:{port}"\ninsecure = true\n')
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        with (out / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603
                [str(BIN / words[0]), *words[1:]], stdout=log, stderr=log, start_new_session=True
            )
        started.append(process)
        return process

    try:
        place = ("--insecure", "--host", HOST, "--port", str(port))
        start("superlink", "flower-superlink", *place, "--disable-runtime-dependency-installation")
        wait_for(port)
        for number, config in enumerate(session.nodes):
            place = ("--insecure", "--host", HOST, "--port", str(free_port()), "--superlink", f"{HOST}:{port}")
            start(f"node-{number}", "flower-supernode", *place, "--node-config", said(config))
        words = ["flwr", "run", session.app, "loop", "--stream"]
        words += ["--run-config", said(session.run_config)] if session.run_config else []
        running = start("run", *words)
        ends = watch(running, Path(session.changes)) if session.changes else []
        code = running.wait()
        if ends:
            (out / "record.json").write_text(json.dumps({"ends": ends, "note": ""}))
        return code
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(port: int) -> None:
    """Until somebody listens."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(LOOK)
    raise TimeoutError(f"nobody listens on port {port}")


def watch(process: subprocess.Popen[bytes], file: Path) -> list[float]:
    """When the file was written anew, until the process ends."""
    ends: list[float] = []
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            changed = file.stat().st_mtime
            if not ends or changed > ends[-1]:
                ends.append(changed)
        time.sleep(LOOK)
    return ends


if __name__ == "__main__":
    sys.exit(run(Session(**json.loads(Path(sys.argv[1]).read_text()))))
