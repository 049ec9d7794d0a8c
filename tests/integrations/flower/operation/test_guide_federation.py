"""The guide's section "Several machines" as it stands, to the last round; then what its server may not do."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.runtime_pb2 import AcquireTaskRequest

from holdfast.errors import FederationError
from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.rehearsal.driver import grid_of_new_run
from holdfast.integrations.flower.rehearsal.project import CHARTER, app_files
from holdfast.training import Run
from tests.integrations.flower.operation.guide import WARDS, Machines, shell_blocks

pytestmark = pytest.mark.xdist_group("flower")


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    machines = Machines(tmp_path_factory.mktemp("machines"))
    try:
        machines.carry_out()
        yield machines
    finally:
        machines.stop()


def test_the_guide_names_every_step():
    text = "\n".join(block for _, block in shell_blocks())
    for command in ("init", "serve", "join", "admit", "run", "status"):
        assert f"holdfast federation {command}" in text


def test_the_guides_federation_runs_to_the_last_round(machines):
    run = Run.open(machines.federation / "run")
    assert run.status == "finished"
    assert run.results["clients"] == 5
    assert run.results["faults"] == []
    assert set(run.results["models"]) == {"global", "ditto-1"}
    assert (run.path / "report.html").exists()
    assert "finished: 3 of 3 rounds" in machines.printed["status"]
    assert machines.printed["status"].count(" yes ") == 3


def test_personal_models_are_at_the_nodes_and_nowhere_else(machines):
    for name, wards in WARDS.items():
        found = list((machines.of(name) / "state").glob("*/client-*/after-*.safetensors"))
        assert len({file.parent for file in found}) == len(wards)
    assert not list(machines.of("server").rglob("client-*"))


def test_what_nodes_and_server_keep_is_their_users_alone(machines):
    for folder in (machines.federation, *(machines.of(name) / "state" for name in WARDS)):
        for path in (folder, *folder.rglob("*")):
            open_to_others = stat.S_IMODE(path.lstat().st_mode) & 0o077
            assert not open_to_others or path.suffix in (".pub", ".crt"), path


def test_an_outsider_fails_on_the_guides_federation(machines, tmp_path):
    (tmp_path / "ca.crt").write_bytes((machines.federation / "keys" / "ca.crt").read_bytes())
    (tmp_path / "config.toml").write_text(
        f'[superlink.theirs]\naddress = "127.0.0.1:{machines.environment["PORT"]}"\n'
        f'root-certificates = "{tmp_path / "ca.crt"}"\n'
    )
    environment = {**os.environ, "FLWR_HOME": str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"}
    words = [str(Path(sys.executable).parent / "flwr"), "list", "theirs"]
    done = subprocess.run(words, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode != 0


FOREIGN = """
from pathlib import Path
from flwr.app import Message
from flwr.clientapp import ClientApp

Path({marker!r}).write_text("imported")
app = ClientApp()

@app.train()
def train(message, context):
    Path({marker!r}).write_text("run")
    return Message(message.content, reply_to=message)
"""


def replies_to(machines, files, content) -> list[Message]:
    """What every node answers to a message of an app that the operator starts."""
    federation = FederationFolder.open(machines.federation)
    with grid_of_new_run(federation.access(), files) as grid:
        nodes = list(grid.get_node_ids())
        assert len(nodes) == len(WARDS)
        orders = [Message(content, node, "train") for node in nodes]
        return list(grid.send_and_receive(orders, timeout=60))


def test_an_operators_foreign_app_does_not_run_on_a_node(machines, tmp_path):
    marker = tmp_path / "marker"
    files = {**app_files({}), "holdfast_client.py": FOREIGN.format(marker=str(marker)).encode()}
    replies = replies_to(machines, files, RecordDict({"x": ConfigRecord({"y": 1})}))
    assert len(replies) == len(WARDS)
    assert all(reply.has_error() for reply in replies)
    assert not marker.exists()
    for name in WARDS:
        assert not list((machines.of(name) / "state" / "flwr").rglob("*.py")), "nothing of it is unpacked"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 3.0}, "learning_rate"),
        ({"personalize": "none"}, "personalize"),
        ({"attack": "a1", "malicious": 0.5}, "attack, malicious"),
        ({"model": "softmax"}, "model"),
        ({"seed": 1}, "seed"),
    ],
    ids=str,
)
def test_a_node_refuses_orders_beyond_its_invitation(machines, change, named):
    """Also poisoned labels, which the simulator's own options could ask of a node."""
    invitation = FederationFolder.open(machines.federation).invitation()
    with pytest.raises(FederationError, match=f"another {named} than"):
        invitation.check_order({**invitation.options, **change}, invitation.charter.to_json())


def test_a_changed_order_is_answered_with_the_names_of_what_differs(machines):
    invitation = FederationFolder.open(machines.federation).invitation()
    options = {**invitation.options, "learning_rate": 3.0}
    files = app_files(options, **{CHARTER: invitation.charter.to_json()})
    replies = replies_to(machines, files, Request("census", "0" * 32).pack())
    assert all("another learning_rate than the invitation" in reply.error.reason for reply in replies)
    assert len(replies) == len(WARDS)


def test_another_user_of_a_nodes_machine_gets_no_task(machines):
    """He reaches the loopback port of the SuperNode's Runtime API, and has no secret."""
    log = (machines.of("north") / "state" / "node.log").read_text()
    port = re.findall(r"Uvicorn running on http://127.0.0.1:(\d+)", log)[-1]
    for secret in (None, b"guessed"):
        client = Access(f"127.0.0.1:{port}", secret=secret).runtime()
        with pytest.raises(httpx.HTTPStatusError) as refused:
            client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-clientapp"]))
        client.close()
        assert refused.value.response.status_code in (401, 403)


def test_a_node_starts_again_when_its_supernode_is_killed(machines):
    """Whatever falls over: the node says so and is back."""
    log, joined = machines.log("west"), "joined the federation"
    before = log.read_text().count(joined)
    os.kill(supernode(machines.started[-1].pid), 9)
    until = time.monotonic() + 60
    while log.read_text().count(joined) == before:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)
    assert "fell over" in log.read_text()


def supernode(command: int) -> int:
    """The process below a command that leads a group of its own."""
    family = [command]
    for pid in family:
        below = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        family += map(int, below)
    return next(pid for pid in family[1:] if os.getpgid(pid) == pid)
