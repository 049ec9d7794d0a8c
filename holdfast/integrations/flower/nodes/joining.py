"""Being a node for as long as the federation lasts: wait to be admitted, answer, start again after trouble.

Nothing ends a node but its user: a server that is away, a key that is not on the roster yet and a SuperNode that fell
over are told in a sentence, once, and tried again.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError
from holdfast.files import write_atomically
from holdfast.integrations.flower.nodes.processes import Waits, answer_task, be, be_supernode, execute
from holdfast.integrations.flower.nodes.scribe import write_escaped
from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.operation.lifetime import end_with_parent

if TYPE_CHECKING:
    from flwr.app import Context, Message

_HOST = "127.0.0.1"
#: Seconds between attempts at first, doubled up to the most; the most is also waited after a fall.
_SOON, _PAUSE = 1.0, 5.0
_HEARTBEAT = 30.0


@dataclass(frozen=True)
class JoinedNode:
    """A node of a federation.

    Attributes:
        server: host and port of the proxy.
        certificate: a file with the authority's certificate.
        key: a file with the node's private key.
        state: the folder with everything it keeps.
        config: of the node: data, clients.
        answer: the app; code of this machine.
        threads: of torch, for each message.
        tell: says a sentence to the user.
    """

    server: str
    certificate: Path
    key: Path
    state: Path
    config: Mapping[str, str]
    answer: Callable[[Message, Context], Message]
    threads: int
    tell: Callable[[str], None]

    def run(self) -> None:
        """Take part until the user ends it.

        Raises:
            ConfigError: if the server has another certificate than the invitation.
        """
        prepare_to_fork()
        try:
            self._take_part()
        finally:
            self._sign_off()

    def _take_part(self) -> None:
        told, pause = "", _SOON
        while True:
            if (reason := self.refusal()) is None:
                self.tell(f"joined the federation at {self.server}; Ctrl-C to leave")
                self._be_a_node()
                self.tell(f"the node fell over (the log is {self.log}); it starts again")
                told, pause = "", _PAUSE
            elif reason != told:
                self.tell(f"{reason}; trying again every {_PAUSE:g} s")
                told = reason
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE)

    def _sign_off(self) -> None:
        """Tell the server that this node is gone, so that it is not waited for."""
        import httpx  # noqa: PLC0415
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest  # noqa: PLC0415

        if self._number.exists():
            client, _ = self._client()
            with client, contextlib.suppress(httpx.HTTPError, ValueError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=int(self._number.read_text())))

    @property
    def log(self) -> Path:
        """What SuperNode and executor say."""
        return self.state / "node.log"

    def refusal(self) -> str | None:
        """Why the server does not let this node in, as a sentence; None if it does.

        Raises:
            ConfigError: if this is not the server of the invitation.
        """
        import httpx  # noqa: PLC0415
        from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest  # noqa: PLC0415

        client, key = self._client()
        hello = ActivateNodeRequest(public_key=key, heartbeat_interval=_HEARTBEAT)
        try:
            with client:
                try:
                    number = client.ActivateNode(hello).node_id
                except httpx.HTTPStatusError:
                    # A node that fell over counts as connected until its heartbeat runs out: it signs itself off.
                    if not self._number.exists():
                        raise
                    client.DeactivateNode(DeactivateNodeRequest(node_id=int(self._number.read_text())))
                    number = client.ActivateNode(hello).node_id
                client.DeactivateNode(DeactivateNodeRequest(node_id=number))
            write_atomically(self._number, str(number).encode())
        except httpx.ConnectError as error:
            if "certificate" in str(error).lower():
                raise ConfigError(
                    f"the server at {self.server} has not the certificate of the invitation, so it is another one "
                    f"({error}); check the address, or ask for a new invitation"
                ) from error
            return f"there is no server at {self.server} yet"
        except httpx.TransportError:
            return f"the server at {self.server} does not answer"
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.UNAUTHORIZED and not self._number.exists():
                return "the server does not accept this node's signature; compare the clocks of both machines"
            if error.response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                return f"the server at {self.server} is not ready"
            return f"the key of this node is not admitted yet; send {self.key}.pub to the operator"
        return None

    @property
    def _number(self) -> Path:
        """The number by which the SuperLink knows this node."""
        return self.state / "number"

    def _client(self) -> tuple[Any, bytes]:
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key  # noqa: PLC0415
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: PLC0415
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: PLC0415
        from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: PLC0415
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor  # noqa: PLC0415

        private = load_ssh_private_key(self.key.read_bytes(), None)
        if not isinstance(private, EllipticCurvePrivateKey):
            raise ConfigError(f"{self.key} isn't the key of a node; take another --state, which makes one")
        public = private.public_key()
        known: list[Any] = [RuntimeVersionHttpInterceptor("SuperNode"), NodeAuthHttpInterceptor(private, public)]
        client = FleetHttpClient.from_server_address(self.server, False, self.certificate.read_bytes(), known)
        return client, public_key_to_bytes(public)

    # ---------------------------------------------------------------------------------------------- processes

    def _be_a_node(self) -> None:
        """Run SuperNode and executor until one of them ends; none of them outlives this process."""
        pid = os.fork()
        if pid == 0:
            be(self._lead)
        try:
            os.waitpid(pid, 0)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _lead(self) -> None:
        """Lead a process group of SuperNode and executor, and write to the log."""
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_with_parent()
        os.umask(0o077)
        _print_to(self.log)
        port, secret = _free_port(), self.state / "superexec.secret"
        secret.unlink(missing_ok=True)
        secret.write_bytes(secrets.token_bytes(32))
        access = Access(f"{_HOST}:{port}", secret=secret.read_bytes())
        work, done = os.pipe(), os.pipe()
        if os.fork() == 0:
            end_with_parent()
            os.close(work[1])
            os.close(done[0])
            be(functools.partial(execute, access, work[0], done[1], self._run_task))
        os.close(work[0])
        os.close(done[1])
        os.environ["FLWR_HOME"] = str(self.state / "flwr")
        sys.argv = ["flower-supernode", *self._words(port, secret)]
        be_supernode(Waits(work[1], done[0]))

    def _words(self, port: int, secret: Path) -> list[str]:
        config = {"state": str(self.state), **self.config}
        words = ["--superlink", self.server, "--root-certificates", str(self.certificate)]
        words += ["--auth-supernode-private-key", str(self.key), "--isolation", "process"]
        words += ["--superexec-auth-secret-file", str(secret), "--host", _HOST, "--port", str(port)]
        return [*words, "--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())]

    def _run_task(self, access: Access, token: str) -> None:
        import torch  # noqa: PLC0415

        torch.set_num_threads(self.threads)
        answer_task(access, token, self.answer)


def prepare_to_fork() -> None:
    """Import once what every message needs; one thread, since threads don't survive a fork."""
    import gc  # noqa: PLC0415

    import flwr.supernode.cli.flower_supernode  # noqa: PLC0415
    import flwr.supernode.main  # noqa: PLC0415
    import flwr.supernode.runtime.run_clientapp  # noqa: F401, PLC0415
    import torch  # noqa: PLC0415

    import holdfast.data.own.schema  # noqa: F401, PLC0415

    os.environ.update({"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"})
    torch.set_num_threads(1)
    gc.freeze()


def check_server(server: str) -> str:
    """Host and port of a server.

    Raises:
        ConfigError: if they are something else.
    """
    host, _, port = server.rpartition(":")
    if not host or "/" in server or not port.isdigit():
        raise ConfigError(f"the server is {server!r}; give host and port, as in superlink.example.org:8443")
    return server


def _print_to(log: Path) -> None:
    """Have all that this process and its children print written to the log, by a process of its own."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(write)
        be(functools.partial(write_escaped, read, log))
    os.close(read)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(write, 1)
    os.dup2(write, 2)
    os.close(write)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return int(listener.getsockname()[1])
