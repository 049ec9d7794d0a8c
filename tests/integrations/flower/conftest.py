"""SuperLinks with four and eight SuperNodes for all tests that do not kill them: real processes, on loopback."""

from importlib.util import find_spec

import pytest

from holdfast.integrations.flower.rehearsal.deployment import Deployment

if find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py"]


def nodes(folder, count):
    with Deployment(folder, ["holdfast.cli.commands.federation.apps"]) as deployment:
        for node in range(count):
            deployment.start_node(node, {"share": f"{node}/{count}"})
        yield deployment


@pytest.fixture(scope="session")
def four_nodes(tmp_path_factory):
    yield from nodes(tmp_path_factory.mktemp("four"), 4)


@pytest.fixture(scope="session")
def eight_nodes(tmp_path_factory):
    yield from nodes(tmp_path_factory.mktemp("eight"), 8)
