"""Several machines in small: Flower's own commands with TLS, node authentication, and data that only its node has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli.commands.federation.apps import export_personal
from holdfast.cli.main import main
from holdfast.errors import ConfigError, FederationError
from holdfast.integrations.flower.operation.credentials import make_authority, make_node_key
from holdfast.integrations.flower.rehearsal.deployment import _free_port
from holdfast.training import Run
from tests.federated.toy import toy_clients

pytestmark = pytest.mark.xdist_group("flower")

PATIENCE = 300


class Machine:
    """Starts commands, and ends them with all that they started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        bin_ = str(Path(sys.executable).parent)
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        home = {"FLWR_HOME": str(folder / "flwr"), "PATH": f"{bin_}:{os.environ['PATH']}"}
        self.environment = {**os.environ, **quiet, **home}

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("wb") as log:
            command = subprocess.Popen(
                list(words), stdout=log, stderr=log, env=self.environment, cwd=self.folder, start_new_session=True
            )
        self.started.append(command)
        return command

    def run(self, name: str, *words: str) -> str:
        command = self.start(name, *words)
        assert command.wait(timeout=PATIENCE) == 0, self.said(name)
        return self.said(name)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: str) -> str:
        return self.log(name).read_text(errors="replace")

    def wait_for(self, name: str, text: str) -> None:
        until = time.monotonic() + PATIENCE
        while text not in self.said(name):
            assert time.monotonic() < until, self.said(name)
            time.sleep(0.1)

    def stop(self) -> None:
        for command in self.started:
            try:
                os.killpg(command.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            command.wait()


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.stop()


def test_known_nodes_run_a_federation_over_tls_and_unknown_ones_are_refused(machine, tmp_path):
    port, keys = _free_port(), tmp_path / "keys"
    address = f"127.0.0.1:{port}"
    make_authority(keys, ["127.0.0.1"])
    for node in ("known", "unknown"):
        make_node_key(keys / node)
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "ours"\n[superlink.ours]\naddress = "{address}"\n'
        f'root-certificates = "{keys / "ca.crt"}"\n'
    )
    toy_clients((9, 23, 17)).save(tmp_path / "data")

    def supernode(name: str, key: str) -> subprocess.Popen[bytes]:
        config = f'data="{tmp_path / "data"}" clients="0-2" state="{tmp_path / "state"}"'
        words = ["--superlink", address, "--root-certificates", str(keys / "ca.crt"), "--port", str(_free_port())]
        key_ = ["--auth-supernode-private-key", str(keys / key), "--node-config", config, "--max-retries", "3"]
        return machine.start(name, "flower-supernode", *words, *key_)

    certificates = ["--ssl-ca-certfile", str(keys / "ca.crt"), "--ssl-certfile", str(keys / "superlink.crt")]
    certificates += ["--ssl-keyfile", str(keys / "superlink.key"), "--enable-supernode-auth"]
    more = ["--host", "127.0.0.1", "--port", str(port), "--disable-runtime-dependency-installation"]
    machine.start("superlink", "flower-superlink", *certificates, *more)
    machine.wait_for("superlink", "Uvicorn running on https://")
    machine.run("register", "flwr", "supernode", "register", str(keys / "known.pub"), "ours")
    supernode("known", "known")
    unknown = supernode("unknown", "unknown")

    assert unknown.wait(timeout=PATIENCE) != 0
    assert "Failed to initialize the connection to the SuperLink" in machine.said("unknown")
    assert "SuperNode ID" not in machine.said("unknown")

    words = ["--engine", "flower", "--nodes", "1", "--rounds", "1", "--cohort", "3", "--ditto.lambda", "0.5"]
    assert main(["federate", *words, "--app", str(tmp_path / "app")]) == 0
    where = json.dumps(str(tmp_path / "run"))
    said = machine.run("run", "flwr", "run", str(tmp_path / "app"), "ours", "--stream", "-c", f"run={where}")

    run = Run.open(tmp_path / "run")
    assert run.status == "finished", said + machine.said("known")
    assert run.results["clients"] == 3
    assert run.results["faults"] == []
    assert set(run.results["models"]) == {"global", "ditto-0.5"}
    name = (run.path / "federation").read_text()
    export_personal(tmp_path / "state", name, 1, "ditto-0.5", tmp_path / "mine.safetensors")
    assert (tmp_path / "mine.safetensors").stat().st_size > 3 * 7 * 4
    with pytest.raises(FederationError, match="does not have client 7"):
        export_personal(tmp_path / "state", name, 7, "ditto-0.5", tmp_path / "mine.safetensors")


def test_keys_are_private_and_never_written_over(tmp_path):
    make_authority(tmp_path, ["superlink.example.org", "10.0.0.1"])
    make_node_key(tmp_path / "node")

    assert {oct((tmp_path / name).stat().st_mode & 0o777) for name in ("superlink.key", "node")} == {"0o600"}
    assert (tmp_path / "node.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    with pytest.raises(ConfigError, match="authority"):
        make_authority(tmp_path, ["superlink.example.org"])
    with pytest.raises(ConfigError, match="key"):
        make_node_key(tmp_path / "node")
