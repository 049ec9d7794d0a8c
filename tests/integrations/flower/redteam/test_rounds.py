"""Rounds against malicious and slow nodes: real nodes with real data, in this process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Array

from holdfast.cli.commands.federation.federate import results_table
from holdfast.errors import ConfigError
from holdfast.federated.aggregation import build_aggregator
from holdfast.federated.expectation import Expectation
from holdfast.federated.run_files import FederationSpec, record
from holdfast.integrations.flower.server.executor import staleness_weight
from holdfast.integrations.flower.server.expecting import differences, expectation_of_nodes
from holdfast.integrations.flower.settings import FlowerSettings
from tests.integrations.flower.in_process import Nodes
from tests.integrations.flower.small_federation import new_run, options_of

NODES, CLIENTS = 3, 12
RULES = ["median", "trimmed-mean", "krum", "multi-krum", "geometric-median"]


def options(*words: str):
    fixed = ["--nodes", str(NODES), "--rounds", "6", "--local-steps", "20", "--personalize", "none"]
    fixed += ["--executor", "serial"]
    fixed += ["--digits-clients.clients", str(CLIENTS), "--cohort", str(CLIENTS)]
    return options_of(*fixed, "--digits-clients.classes-per-client", "10", *words)


def fifty_times_against(content, request):
    """What one of three nodes sent: -50 times its update."""
    if request.action == "train":
        updates = content["arrays"]["updates"].numpy()
        content["arrays"]["updates"] = Array(-50 * updates)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Mean accuracy when nobody attacks."""
    return accuracy(Nodes(tmp_path_factory.mktemp("clean"), options("--unlisted"), NODES).federate())


def accuracy(outcome) -> float:
    return float(outcome.reports["global"].scores.accuracy[4:].mean())


@pytest.mark.parametrize("rule", RULES)
def test_a_node_of_three_that_sends_minus_fifty_times_its_update_costs_nothing_under_a_rule_that_stands_it(
    rule, tmp_path, clean
):
    words = options("--aggregate", rule, "--expect-malicious-nodes", "1")
    nodes = Nodes(tmp_path, words, NODES)
    nodes.tamper[0] = fifty_times_against
    outcome = nodes.federate()
    assert clean > 0.9
    assert outcome.expected.f == CLIENTS // NODES
    assert accuracy(outcome) > clean - 0.04


def test_the_mean_falls_to_the_same_attack(tmp_path, clean):
    """Otherwise the tests above could not fail."""
    nodes = Nodes(tmp_path, options(), NODES)
    nodes.tamper[0] = fifty_times_against
    assert accuracy(nodes.federate()) < clean - 0.3


@pytest.mark.parametrize("rule", RULES)
def test_numbers_at_the_end_of_their_range_defeat_no_rule_by_overflow(rule, tmp_path, clean):
    """Their squares are infinite and their differences no numbers; each is finite, so none is refused."""

    def extreme(content, request):
        if request.action == "train":
            sent = content["arrays"]["updates"].numpy()
            signs = np.where(np.arange(sent.shape[1]) % 2, 1, -1).astype(sent.dtype)
            content["arrays"]["updates"] = Array(np.broadcast_to(np.finfo(sent.dtype).max * signs, sent.shape).copy())

    nodes = Nodes(tmp_path, options("--aggregate", rule, "--expect-malicious-nodes", "1"), NODES)
    nodes.tamper[0] = extreme
    outcome = nodes.federate()
    assert outcome.weights.isfinite().all()
    assert accuracy(outcome) > clean - 0.04


NOT_NUMBERS = {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf}


@pytest.mark.parametrize("value", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
@pytest.mark.parametrize("name", ["updates", "losses"])
def test_what_is_no_finite_number_is_refused_client_by_client(name, value, tmp_path):
    def spoil(content, request):
        if request.action == "train":
            sent = content["arrays"][name].numpy().copy()
            sent.reshape(len(sent), -1)[0, -1] = value
            content["arrays"][name] = Array(sent)

    nodes = Nodes(tmp_path, options("--rounds", "1", "--local-steps", "1"), NODES)
    nodes.tamper[0] = spoil
    outcome = nodes.federate()
    (fault,) = outcome.faults
    assert (fault["kind"], fault["clients"], fault["reason"]) == ("refused", [0], "the update is not finite")
    assert outcome.joined.tolist() == [0] + [1] * (CLIENTS - 1)
    assert outcome.weights.isfinite().all()


@pytest.mark.parametrize("rule", ["krum", "trimmed-mean", "bulyan"])
def test_a_rule_that_must_know_and_was_not_told_is_refused(rule, tmp_path):
    with pytest.raises(ConfigError, match="none was given"):
        Nodes(tmp_path, options("--aggregate", rule), NODES).federate()


def test_two_of_three_nodes_are_more_than_any_rule_stands_and_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="8 of 12 clients malicious a round may hold 8"):
        Nodes(tmp_path, options("--aggregate", "median", "--expect-malicious-nodes", "2"), NODES).federate()


def test_malicious_nodes_are_as_many_clients_as_the_largest_of_them_host(tmp_path):
    roster = Nodes(tmp_path, options(), NODES).roster
    settings = FlowerSettings(expect_malicious_nodes=2)
    assert expectation_of_nodes(Expectation(0.1), settings, roster).expect_malicious == 8.0
    assert expectation_of_nodes(Expectation(10.0), settings, roster).expect_malicious == 10.0
    with pytest.raises(ConfigError, match="needs a roster"):
        expectation_of_nodes(Expectation(), settings, None)
    with pytest.raises(ConfigError, match="expect fewer"):
        expectation_of_nodes(Expectation(), FlowerSettings(expect_malicious_nodes=4), roster)


CHANGES = {
    "aggregate": ["--aggregate", "median"],
    "learning_rate": ["--learning-rate", "0.123"],
    "seed": ["--seed", "5"],
    "ditto.lambda": ["--personalize", "ditto", "--ditto.lambda", "0.5"],
}


@pytest.mark.parametrize(("key", "words"), CHANGES.items(), ids=CHANGES)
def test_a_restart_with_another_configuration_is_refused_and_says_what_differs(key, words, tmp_path):
    before = options("--rounds", "1")
    nodes = Nodes(tmp_path / "nodes", before, NODES)
    run = new_run(tmp_path / "run", before)
    nodes.federate(run)
    other = Nodes(tmp_path / "nodes", options("--rounds", "1", *words), NODES)
    with pytest.raises(ConfigError, match="these differ") as refused:
        other.federate(run)
    assert key.split(".")[0] in str(refused.value)


def test_a_restart_may_have_another_timeout_and_not_another_charter(tmp_path):
    before = options("--rounds", "2")
    nodes = Nodes(tmp_path / "nodes", before, NODES)
    run = new_run(tmp_path / "run", before)
    nodes.federate(run)
    patient = Nodes(tmp_path / "nodes", options("--rounds", "2", "--timeout", "77"), NODES)
    assert patient.federate(run).history[-1]["round"] == 2
    with pytest.raises(ConfigError, match=r"charter\.most_bytes"):
        nodes.federate(run, charter=replace(nodes.charter, most_bytes=5))


def test_a_charter_that_is_too_small_for_the_updates_of_a_node_is_refused_before_the_first_round(tmp_path):
    nodes = Nodes(tmp_path, options("--rounds", "1"), NODES)
    small = nodes.charter = replace(nodes.charter, most_bytes=10_000)
    with pytest.raises(ConfigError, match="updates of 4 clients of one node have 10,432 bytes"):
        nodes.federate(charter=small)


def test_keys_that_differ_are_found_at_any_depth():
    assert differences({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 5, "d": 3}, "e": 0}) == ["b.c", "e"]


def test_the_report_counts_nobody_as_benign_and_says_that_numbers_are_self_reported(tmp_path):
    nodes = Nodes(tmp_path, options("--rounds", "1"), NODES)
    outcome = nodes.federate()
    made = nodes.plan
    spec = FederationSpec("digits-clients", "softmax", made.settings, made.objective, made.aggregator, None)
    written = record(outcome, outcome.runtime.clients, spec)
    assert written["self_reported"] is True
    assert written["participation"]["mean"] == 1.0
    title = str(results_table(outcome.reports, "a run", self_reported=True).title)
    assert "benign" not in title and "as their nodes report it" in title


def test_an_update_that_is_late_counts_less():
    assert [round(staleness_weight(late), 3) for late in (0, 1, 3, 8)] == [1.0, 0.707, 0.5, 0.333]


def slow_grid(nodes: Nodes, clock, slow: dict[int, float]):
    """A grid whose nodes need some seconds for an order to train, and do one thing after another.

    Time passes when the server waits.
    """
    grid = nodes.grid()
    held: list[tuple[float, str, object]] = []
    free: dict[int, float] = {}
    deliver, usual = grid.deliver, grid.get_nodes

    def later(name, message):
        node = message.metadata.dst_node_id
        trains = message.content["holdfast"]["action"] == "train"
        done = max(free.get(node, 0.0), clock.now) + (slow.get(node - 100, 0.0) if trains else 0.0)
        if done > clock.now:
            free[node] = done
            held.append((done, name, message))
        else:
            deliver(name, message)

    def look():
        for entry in [entry for entry in held if entry[0] <= clock.now]:
            held.remove(entry)
            deliver(*entry[1:])
        return usual()

    grid.deliver, grid.get_nodes = later, look
    return grid


@pytest.fixture
def clock(monkeypatch):
    from tests.integrations.flower.server.peers import Clock

    clock = Clock()
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange.time", clock)
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._SHORTEST", 0.1)
    monkeypatch.setattr("holdfast.integrations.flower.server.exchange._LONGEST", 0.2)
    return clock


SLOW = 2 * [0.0] + [3.2]  # timeouts that each node needs


def slow_run(tmp_path, clock, *words: str, rounds: int = 9):
    """One of three nodes needs 3.2 timeouts."""
    nodes = Nodes(tmp_path, options("--timeout", "10", "--rounds", str(rounds), *words), NODES)
    grid = slow_grid(nodes, clock, {node: 10 * timeouts for node, timeouts in enumerate(SLOW)})
    return nodes.federate(grid=grid), grid


def test_waiting_for_a_slow_node_ends_and_its_clients_take_part_in_every_round(tmp_path, clock):
    """It was a livelock: an order that took longer than the timeout was sent again, and its answer thrown away."""
    outcome, grid = slow_run(tmp_path, clock, "--on-few", "wait", "--minimum", str(CLIENTS), rounds=3)
    assert outcome.joined.tolist() == [3] * CLIENTS
    assert outcome.faults == []
    assert grid.count(102, "train") == 3  # an order per round


def test_weighed_late_answers_count_at_least_once_in_every_five_rounds_of_a_node_three_times_too_slow(tmp_path, clock):
    """What is promised: once in 1 + ceil(timeouts) rounds; here 1 + 4."""
    outcome, grid = slow_run(tmp_path, clock, "--late", "weigh", rounds=10)
    assert outcome.joined[:8].tolist() == [10] * 8
    assert min(outcome.joined[8:].tolist()) >= 10 // 5
    assert grid.count(102, "train") <= 1 + 10 // 4  # no second order while one is under way
    assert outcome.participation["slow"] == 4
    assert outcome.participation["lowest"] == pytest.approx(int(outcome.joined[8]) / 10)
    assert "4 of 12 clients counted in less than half" in outcome.participation["sentence"]


def test_dropped_late_answers_are_told_and_hold_no_round_up(tmp_path, clock):
    start = clock.now
    outcome, _ = slow_run(tmp_path, clock, rounds=9)
    assert outcome.joined.tolist() == [9] * 8 + [0] * 4
    kinds = {fault["kind"] for fault in outcome.faults}
    assert {"silent", "busy"} <= kinds <= {"silent", "busy", "late"}
    assert clock.now - start < 9 * 10
    assert outcome.participation["below_half"] == outcome.participation["slow"] == 4


def test_nobody_has_two_updates_in_a_round_and_a_round_no_more_than_its_cohort(tmp_path, clock, monkeypatch):
    from holdfast.integrations.flower.server.federation import FlowerFederation

    rounds = []
    combine = FlowerFederation._combine

    def noted(self, chosen, updates, losses):
        rounds.append(chosen.tolist())
        combine(self, chosen, updates, losses)

    monkeypatch.setattr(FlowerFederation, "_combine", noted)
    slow_run(tmp_path, clock, "--late", "weigh", "--cohort", "6", rounds=10)
    assert all(len(set(one)) == len(one) <= 6 for one in rounds)


def test_a_stale_update_is_the_honest_one_times_its_weight(tmp_path, clock):
    """The rule sees (1 + s)^(-1/2) of what the client sent."""
    from holdfast.integrations.flower.server.executor import FlowerExecutor

    seen = []
    train = FlowerExecutor.train

    def noted(self, assignments, received, updates, losses):
        train(self, assignments, received, updates, losses)
        for client, late in self.exchange.stale.items():
            seen.append((late, float(updates[assignments[0].clients.tolist().index(client)].norm())))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FlowerExecutor, "train", noted)
        nodes = Nodes(tmp_path, options("--timeout", "10", "--rounds", "5", "--late", "weigh"), NODES)
        sent = []

        def note(content, request):
            if request.action == "train":
                sent.extend(content["arrays"]["updates"].numpy())

        nodes.tamper[2] = note
        nodes.federate(grid=slow_grid(nodes, clock, {2: 32.0}))
    assert seen and all(late >= 3 for late, _ in seen)
    norms = [float(torch.from_numpy(row.copy()).norm()) for row in sent[: len(seen)]]
    assert [norm for _, norm in seen] == pytest.approx(
        [norm * staleness_weight(seen[0][0]) for norm in norms], rel=1e-5
    )


def test_every_rule_here_has_a_bound_that_covers_a_node_of_three():
    for rule in RULES:
        stands = build_aggregator(rule).stands(CLIENTS)
        assert stands is not None and stands >= CLIENTS // NODES
