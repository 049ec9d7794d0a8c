"""One SuperLink and eight SuperNodes for all tests that do not kill them: real processes, on loopback."""

from importlib.util import find_spec

import pytest

from holdfast.integrations.flower.rehearsal.deployment import Deployment

NODES = 8

if find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def eight_nodes(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("deployment"), ["holdfast.cli.commands.federation.apps"]) as deployment:
        for node in range(NODES):
            deployment.start_node(node, {"share": f"{node}/{NODES}"})
        yield deployment
