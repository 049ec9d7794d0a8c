"""Twenty clients on four nodes, real processes, one of the nodes three times slower than the timeout."""

import re
from pathlib import Path

import pytest

from holdfast.integrations.flower.nodes.client_state import ClientStates
from holdfast.integrations.flower.nodes.ids import parse_ids
from tests.integrations.flower.small_federation import new_run, on_flower, options_of

pytestmark = pytest.mark.xdist_group("flower")

NODES, CLIENTS, STEPS = 4, 20, 2
SLOW_CLIENT = Path(__file__).with_name("slow_client.py")
SLOW_ONES = range(15, 20)


def slow_run(deployment, tmp_path, rounds: int, timeout: float, *words: str):
    """The last node needs three timeouts more for every order to train."""
    options = options_of(
        *("--nodes", str(NODES), "--digits-clients.clients", str(CLIENTS), "--cohort", str(CLIENTS), "--rounds"),
        *(str(rounds), "--local-steps", str(STEPS), "--personalize", "ditto", "--ditto.lambda", "0.5"),
        *("--timeout", str(timeout), "--join-timeout", "60", *words),
    )
    run = new_run(tmp_path / "run", options)
    files = {"holdfast_client.py": SLOW_CLIENT.read_text().replace("SECONDS", str(3 * timeout)).encode()}
    return on_flower(deployment, options, run, files=files), run


def trained(deployment, run, client: int) -> int:
    """Rounds that a client has trained for, as its node remembers it."""
    folder = deployment.node_folder(client * NODES // CLIENTS) / (run.path / "federation").read_text()
    state = ClientStates(folder).last(client)
    return 0 if state is None else state.drawn // STEPS


def test_late_answers_that_are_weighed_let_a_slow_node_take_part_as_often_as_is_promised(four_nodes, tmp_path):
    rounds, needs = 5, 3 + 1  # timeouts, with one for the work itself
    outcome, run = slow_run(four_nodes, tmp_path, rounds, 2.0, "--late", "weigh")
    for client in SLOW_ONES:
        counted = int(outcome.joined[client])
        assert counted >= rounds // (1 + needs)
        assert counted <= trained(four_nodes, run, client) <= counted + 1  # nothing is lost; one may be under way
    assert outcome.participation["slow"] >= len(SLOW_ONES)


def test_a_server_that_waits_for_all_gets_all_of_a_slow_node_in_every_round(four_nodes, tmp_path, caplog):
    outcome, run = slow_run(four_nodes, tmp_path, 2, 1.0, "--on-few", "wait", "--minimum", str(CLIENTS))
    assert outcome.joined.tolist() == [2] * CLIENTS
    assert [trained(four_nodes, run, client) for client in range(CLIENTS)] == [2] * CLIENTS
    waited_for = re.findall(r"still waiting for clients ([0-9,-]+)", caplog.text)
    assert any(set(SLOW_ONES) <= set(parse_ids(clients)) for clients in waited_for)
