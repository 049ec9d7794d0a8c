"""Clients that send what they should not: the round goes on without them, and the report says so."""

import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.federated import federate
from holdfast.integrations.flower.nodes.holdings import picked
from tests.integrations.flower.small_federation import new_run, on_flower, options_of

pytestmark = pytest.mark.xdist_group("flower")

HOSTILE = Path(__file__).with_name("hostile_client.py")
HONEST, EVERYBODY, ROUNDS = 8, 16, 4
NODE = 4  # clients of one of the four nodes, of which two are hostile
#: What is said of each misdeed: of the last node in the rounds in turn, and then of the last but one.
SAID = [
    "not finite",
    "649",
    "float16",
    "1250000000",
    "in NumPy's format",
    "claims -5 examples",
    "is for round 2",
    "not asked",
]


def test_hostile_clients_are_dropped_counted_and_reported_and_cost_no_accuracy(four_nodes, tmp_path):
    words = ["--nodes", "4", "--rounds", str(ROUNDS), "--cohort", str(EVERYBODY), "--personalize", "none"]
    words += ["--aggregate", "median", "--local-steps", "16", "--digits-clients.classes-per-client", "10"]
    options = options_of(*words)
    files = {"holdfast_client.py": HOSTILE.read_bytes()}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    attacked = on_flower(four_nodes, options, new_run(tmp_path / "run", options), files=files)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000
    refused = {round_: set() for round_ in range(1, ROUNDS + 1)}
    for fault in attacked.faults:
        assert fault["kind"] == "refused"
        refused[fault["round"]] |= set(fault["clients"])
        last = min(fault["clients"]) >= EVERYBODY - NODE
        assert SAID[fault["round"] - 1 + (0 if last else ROUNDS)] in fault["reason"]
    assert all(clients == set(range(HONEST, EVERYBODY)) for clients in refused.values())
    assert attacked.dropped == ROUNDS * (EVERYBODY - HONEST)
    assert attacked.joined.tolist() == [ROUNDS] * HONEST + [0] * (EVERYBODY - HONEST)

    plan = blueprint_of(options)
    clients = picked(plan.load(), range(HONEST))
    settings = replace(options.settings, cohort=HONEST, executor="serial")
    alone = federate(clients, plan.model(clients), settings, aggregator=plan.aggregator)
    ours, theirs = (outcome.reports["global"].scores.accuracy[:HONEST].mean() for outcome in (attacked, alone))
    assert theirs > 0.7
    assert abs(ours - theirs) <= 0.02
    assert torch.isfinite(attacked.weights).all()
