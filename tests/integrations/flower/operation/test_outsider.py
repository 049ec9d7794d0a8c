"""An outsider with the public certificate, a home and a key of his own tries everything that Flower offers.

A missing nginx fails these tests: what they promise can't be had without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pkgutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import flwr.proto
import grpc
import httpx
import pytest
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supernode.fleet_http_client import FleetHttpClient

from holdfast.errors import ConfigError, FederationError
from holdfast.integrations.flower.nodes.joining import JoinedNode
from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.operation.credentials import make_authority, make_node_key
from holdfast.integrations.flower.operation.membership import admit, dismiss, register
from holdfast.integrations.flower.operation.private import private_files
from holdfast.integrations.flower.operation.proxy import FLEET_METHODS
from holdfast.integrations.flower.operation.service import serving
from holdfast.integrations.flower.rehearsal.project import app_files, write_app
from holdfast.integrations.flower.roster import Roster
from tests.integrations.flower.operation.insider import node_client
from tests.integrations.flower.operation.server import small_federation

pytestmark = pytest.mark.xdist_group("flower")

PROTOBUF = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = small_federation(tmp_path_factory.mktemp("server") / "federation")
    make_node_key(folder.path / "north")
    admit(folder, "north", folder.path / "north.pub", 2, 100)
    with serving(folder):
        register(folder.access(), folder.roster())
        yield folder


@pytest.fixture
def outsider(federation, tmp_path):
    """Knows the address and the certificate, and lives elsewhere."""
    (tmp_path / "ca.crt").write_bytes((federation.keys / "ca.crt").read_bytes())
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    with httpx.Client(verify=trust, base_url=f"https://{federation.listen}", timeout=20) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_happened(federation):
    """Whatever a test tries: the same one node is registered afterwards, and no run was started."""
    yield
    with federation.access().control() as control:
        nodes = control.ListNodes(ListNodesRequest()).nodes_info
        assert [node.name for node in nodes if node.status != "unregistered"] == ["north"]
        assert not control.ListRuns(ListRunsRequest()).run_dict


def http_routes() -> list[tuple[str, str]]:
    """Every route of a SuperLink: method and path."""
    from flwr.superlink.main import create_app

    spec = create_app().openapi()
    return [(method.upper(), path) for path, methods in spec["paths"].items() for method in methods]


def rpc_methods() -> list[str]:
    """Every method of every service that Flower defines."""
    found = []
    for module in pkgutil.iter_modules(flwr.proto.__path__):
        if module.name.endswith("_pb2"):
            services = importlib.import_module(f"flwr.proto.{module.name}").DESCRIPTOR.services_by_name
            found += [
                f"/{service.full_name}/{method.name}" for service in services.values() for method in service.methods
            ]
    return found


@contextlib.contextmanager
def activated(client: FleetHttpClient, key: bytes) -> Iterator[int]:
    """The number of a node that is connected meanwhile."""
    number = client.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=30)).node_id
    yield number
    client.DeactivateNode(DeactivateNodeRequest(node_id=number))


def raw_request(federation, *lines: str, body: bytes = b"") -> bytes:
    """What comes back for a request that no library would send."""
    host, _, port = federation.listen.rpartition(":")
    trust = ssl.create_default_context(cafile=str(federation.keys / "ca.crt"))
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        trust.wrap_socket(plain, server_hostname=host) as link,
    ):
        link.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        answer = b""
        while piece := link.recv(65536):
            answer += piece
    return answer


# -------------------------------------------------------------------------------------------------- who may


def test_an_admitted_node_comes_in_through_the_proxy(federation):
    client, key = node_client(federation, federation.path / "north")
    with client, activated(client, key) as number:
        assert number > 0


def test_a_piece_of_a_model_is_taken(federation):
    """Five megabytes, which nginx keeps in a file before it hands them on; Flower falls over the unknown run."""
    client, key = node_client(federation, federation.path / "north")
    with client, activated(client, key) as number:
        piece = PushObjectRequest(
            node=Node(node_id=number), run_id=1, object_id="0" * 64, object_content=b"\0" * 5 * 2**20
        )
        with pytest.raises(httpx.HTTPStatusError) as answer:
            client.PushObject(piece)
    assert b"nginx" not in answer.value.response.content
    assert "POST /v1/fleet/push-object" in (federation.path / "superlink" / "superlink.log").read_text()


def test_the_operator_reaches_the_control_plane_on_the_server_itself(federation):
    assert register(federation.access(), federation.roster()) == []


# -------------------------------------------------------------------------------------------------- who may not


def test_no_route_but_those_of_nodes_leads_through_the_proxy(outsider):
    routes = {*http_routes(), ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/health"), ("GET", "/")}
    others = [(method, path) for method, path in routes if path.removeprefix("/v1/fleet/") not in FLEET_METHODS]
    assert len(others) > 60
    for method, path in others:
        assert outsider.request(method, path, headers=PROTOBUF).status_code == 404, path


def test_every_route_that_is_let_through_exists_and_asks_for_a_signature(outsider):
    known = {path for _, path in http_routes()}
    for method in FLEET_METHODS:
        assert f"/v1/fleet/{method}" in known
        assert outsider.post(f"/v1/fleet/{method}", headers=PROTOBUF).status_code == 401, method
        assert outsider.get(f"/v1/fleet/{method}", headers=PROTOBUF).status_code == 404, method
        for kind in ("application/json", "application/grpc", "text/plain", "application/x-www-form-urlencoded", ""):
            answer = outsider.post(f"/v1/fleet/{method}", headers={"content-type": kind}, content=b"{}")
            assert answer.status_code in (401, 415), (method, kind)


def test_a_key_that_is_not_admitted_signs_in_vain(federation, tmp_path):
    make_node_key(tmp_path / "own")
    client, key = node_client(federation, tmp_path / "own")
    with client, pytest.raises(httpx.HTTPStatusError) as refused:
        client.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=30))
    assert refused.value.response.status_code >= 400


def test_no_method_of_any_service_answers_over_grpc(federation, outsider):
    methods = rpc_methods()
    assert {"/flwr.proto.Fleet/PullMessages", "/flwr.proto.Control/StartRun"} < set(methods)
    trust = grpc.ssl_channel_credentials((federation.keys / "ca.crt").read_bytes())
    with grpc.secure_channel(federation.listen, trust) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary(methods[0])(b"", timeout=5)  # fails before a method is named: HTTP/2 is not spoken
    for method in methods:
        assert outsider.post(method, headers={"content-type": "application/grpc"}).status_code == 404, method


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{app}", "theirs", "--stream"),
        ("log", "1", "theirs"),
        ("supernode", "register", "{key}", "theirs"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_flowers_own_commands_fail(federation, tmp_path, words):
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "ca.crt").write_bytes((federation.keys / "ca.crt").read_bytes())
    (home / "config.toml").write_text(
        f'[superlink.theirs]\naddress = "{federation.listen}"\nroot-certificates = "{home / "ca.crt"}"\n'
    )
    write_app(tmp_path / "app", app_files({}))
    make_node_key(tmp_path / "key")
    given = [word.format(app=tmp_path / "app", key=tmp_path / "key.pub") for word in words]
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    flwr_command = str(Path(sys.executable).parent / "flwr")
    done = subprocess.run(
        [flwr_command, *given], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "404" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "target",
    [
        "/v1/control/start-run/../../fleet/pull-messages",
        "/v1/fleet/../control/list-nodes",
        "/v1/fleet/%2e%2e/control/list-nodes",
        "/v1/fleet/pull-messages/../../control/list-nodes",
        "/v1/fleet/pull-messages%2f..%2f..%2fcontrol%2flist-nodes",
        "//v1/control/list-nodes",
        "/v1//control/list-nodes",
        "//v1/fleet/pull-messages",
        "/v1/./fleet/pull-messages",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages?/v1/control/list-nodes",
        "/v1/fleet/pull-messages#/v1/control/list-nodes",
        "/v1/fleet/pull-messages;x=y",
        "/v1/fleet/pull-messages%00",
        "/V1/CONTROL/LIST-NODES",
        "/v1/Control/list-nodes",
        "/v1/%63ontrol/list-nodes",
        "/v1/control%2flist-nodes",
        "/v1/fleet/pull-messages%20HTTP/1.1",
        "https://127.0.0.1/v1/control/list-nodes",
        "*",
        "\\v1\\control\\list-nodes",
    ],
)
def test_a_path_written_otherwise_is_refused(federation, target):
    answer = raw_request(federation, f"POST {target} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 0",
                         f"Content-Type: {PROTOBUF_MEDIA_TYPE}", "Connection: close")  # fmt: skip
    assert answer.split(b" ")[1][:1] == b"4", answer[:200]
    assert b" 401 " not in answer.split(b"\r\n")[0], "the SuperLink has seen it"


def test_a_second_request_inside_the_first_is_not_seen(federation):
    """Request smuggling: two lengths that disagree, and a forged first hop."""
    inner = b"POST /v1/control/list-nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    for lengths in (
        ("Content-Length: 0", "Transfer-Encoding: chunked"),
        (f"Content-Length: {len(inner)}", "Content-Length: 0"),
        ("Transfer-Encoding: chunked, identity", f"Content-Length: {len(inner)}"),
        ("Transfer-Encoding : chunked", "Content-Length: 3"),
    ):
        answer = raw_request(federation, "POST /v1/fleet/pull-messages HTTP/1.1", "Host: 127.0.0.1", *lengths,
                             f"Content-Type: {PROTOBUF_MEDIA_TYPE}", "X-Forwarded-For: 127.0.0.1",
                             "Connection: close", body=b"0\r\n\r\n" + inner)  # fmt: skip
        assert b"200 OK" not in answer, answer[:300]
        assert answer.count(b"HTTP/1.1") == 1, answer[:300]


def test_plain_http_is_refused(federation):
    answer = httpx.get(f"http://{federation.listen}/v1/control/list-nodes")
    assert answer.status_code == 400


def test_a_body_of_any_size_is_not_taken(outsider):
    answer = outsider.post("/v1/fleet/push-object", headers=PROTOBUF, content=b"\0" * (17 * 2**20))
    assert answer.status_code == 413


def test_the_superlink_listens_on_a_loopback_address_only(federation):
    port = int(federation.superlink.rpartition(":")[2])
    listening = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    ]
    assert f"0100007F:{port:04X}" in listening
    assert f"00000000:{port:04X}" not in listening


def joined(federation, folder: Path, certificate: Path) -> JoinedNode:
    answer = Mock()
    return JoinedNode(federation.listen, certificate, folder / "key", folder, {}, answer, threads=1, tell=print)


def test_a_node_learns_why_it_is_not_let_in(federation, tmp_path):
    make_node_key(tmp_path / "key")
    node = joined(federation, tmp_path, federation.keys / "ca.crt")
    assert "not admitted yet" in node.refusal()
    assert "no server at" in dataclasses.replace(node, server="127.0.0.1:9").refusal()
    assert dataclasses.replace(node, key=federation.path / "north").refusal() is None


def test_a_node_that_fell_over_need_not_wait_until_its_heartbeat_runs_out(federation, tmp_path):
    node = dataclasses.replace(
        joined(federation, tmp_path, federation.keys / "ca.crt"), key=federation.path / "north", state=tmp_path
    )
    assert node.refusal() is None
    client, key = node_client(federation, node.key)
    with client:
        client.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=30))  # and is killed
    assert node.refusal() is None


def test_a_server_with_another_certificate_ends_the_node_with_a_sentence(federation, tmp_path):
    make_node_key(tmp_path / "key")
    make_authority(tmp_path / "other", ["127.0.0.1"])
    with pytest.raises(ConfigError, match="not the certificate of the invitation"):
        joined(federation, tmp_path, tmp_path / "other" / "ca.crt").refusal()


def test_a_dismissed_node_is_let_in_no_more(federation, tmp_path):
    make_node_key(tmp_path / "key")
    node = joined(federation, tmp_path, federation.keys / "ca.crt")
    try:
        admit(federation, "east", tmp_path / "key.pub", 1, 10)
        assert register(federation.access(), federation.roster()) == []
        assert node.refusal() is None
        dismiss(federation, "east")
        assert register(federation.access(), federation.roster()) == []
        assert "not admitted" in node.refusal()
        admit(federation, "east", tmp_path / "key.pub", replace=True)
        assert register(federation.access(), federation.roster()) == ["east"]  # a key that was shut out stays out
        assert "not admitted" in node.refusal()
    finally:
        with private_files():
            Roster([federation.roster().nodes[0]]).save(federation.roster_file)
        register(federation.access(), federation.roster())


# -------------------------------------------------------------------------------------------------- other users


@pytest.mark.parametrize("token", [None, "0" * 64])
def test_another_user_of_the_servers_machine_does_not_control_it(federation, token):
    """He reaches the loopback port, and has no token."""
    known = federation.access()
    stranger = Access(known.address, known.certificate, token, b"guessed")
    with pytest.raises(FederationError, match="refuses"), stranger.control() as control:
        control.ListNodes(ListNodesRequest())
    from flwr.proto.runtime_pb2 import AcquireTaskRequest

    client = stranger.runtime()
    with pytest.raises(httpx.HTTPStatusError) as refused:
        client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
    client.close()
    assert refused.value.response.status_code in (401, 403)


def test_secrets_are_their_owners_alone(federation):
    for path in (federation.path, federation.keys, federation.path / "superlink"):
        assert path.stat().st_mode & 0o777 == 0o700, path
    for path in federation.path.rglob("*"):
        if path.is_file() and path.name not in ("invitation.json",):
            assert path.stat().st_mode & 0o077 == 0 or path.suffix in (".crt", ".pub"), path
