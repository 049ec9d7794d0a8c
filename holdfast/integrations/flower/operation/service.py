"""What runs on the server's machine: the SuperLink on a loopback address, and the proxy in front of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import FederationError, MissingDependencyError
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.operation.lifetime import end_with_parent
from holdfast.integrations.flower.operation.private import private_files, private_folder
from holdfast.integrations.flower.rehearsal.deployment import START_PATIENCE, require_flower

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_PAUSE = 0.1
_HERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - asked, not bound
#: Where Debian keeps what ordinary users rarely call.
_ELSEWHERE = "/usr/sbin:/usr/local/sbin:/opt/homebrew/bin"


@contextlib.contextmanager
def serving(federation: FederationFolder) -> Iterator[Service]:
    """SuperLink and proxy, up and answering; both end with the block.

    Raises:
        FederationError: if one of them does not start; the sentence has its last words.
        MissingDependencyError: if there is no nginx.
    """
    service = Service(federation)
    try:
        service.start()
        yield service
    finally:
        service.stop()


class Service:
    """The two processes of a server.

    Args:
        federation: the folder that `holdfast federation init` made.
    """

    def __init__(self, federation: FederationFolder) -> None:
        require_flower()
        self.federation = federation
        self._nginx = _nginx()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start both, and come back when both listen."""
        folder = self.federation
        for name in ("superlink", "proxy", "flwr"):
            private_folder(folder.path / name)
        self._start("superlink", _superlink_words(folder), folder.superlink)
        self._start("proxy", [self._nginx, "-c", str(folder.proxy_file), "-g", "daemon off;"], _reached(folder.listen))

    def wait(self) -> None:
        """Come back when one of the two has ended.

        Raises:
            FederationError: which one, and its last words.
        """
        while True:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise FederationError(f"the {name} ended: {self._last_words(name)}")
            time.sleep(_PAUSE)

    def stop(self) -> None:
        """End both: first politely, then not. The proxy goes first, so that no node meets half a server."""
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes = {}

    def _start(self, name: str, words: list[str], address: str) -> None:
        if _listens(address):
            raise FederationError(f"something listens at {address} already; stop it, or choose another port at init")
        environment = {**os.environ, **_QUIET, "FLWR_HOME": str(self.federation.path / "flwr")}
        with private_files(), self._log(name).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                words,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: end_with_parent(signal.SIGTERM),  # noqa: PLW1509 - there are no threads yet
            )
        self._processes[name] = process
        until = time.monotonic() + START_PATIENCE
        while not _listens(address):
            if process.poll() is not None or time.monotonic() > until:
                raise FederationError(f"the {name} did not start: {self._last_words(name)}")
            time.sleep(_PAUSE)

    def _log(self, name: str) -> Path:
        return self.federation.path / name / f"{name}.log"

    def _last_words(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        return f"{lines[-1]} (the rest is in {self._log(name)})" if lines else f"see {self._log(name)}"


def _superlink_words(folder: FederationFolder) -> list[str]:
    host, _, port = folder.superlink.rpartition(":")
    words = [sys.executable, "-m", "holdfast.integrations.flower.operation.superlink", str(folder.token_file)]
    words += ["--host", host, "--port", port, "--database", str(folder.path / "superlink" / "state.db")]
    words += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    words += ["--isolation", "process", "--superexec-auth-secret-file", str(folder.secret_file)]
    words += ["--ssl-ca-certfile", str(folder.keys / "ca.crt"), "--ssl-certfile", str(folder.keys / "superlink.crt")]
    return [*words, "--ssl-keyfile", str(folder.keys / "superlink.key")]


def _nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path=_ELSEWHERE)
    if found is None:
        raise MissingDependencyError(
            "a federation is reached through nginx, which keeps strangers out, and there is none on this machine; "
            "install it from your system, for instance with: apt install nginx-light"
        )
    return found


def _reached(listen: str) -> str:
    """Where this machine reaches an address that is listened at."""
    host, _, port = listen.rpartition(":")
    return f"{_HERE.get(host, host)}:{port}"


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
    except OSError:
        return False
