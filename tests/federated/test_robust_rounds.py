"""Rules keep their bounds through a whole federation, and a huge attack costs them next to nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.clients.partitioned import DigitsClients, Partitioned
from holdfast.federated import ATTACKS, Expectation, Gaussian, Rounds, Threat, federate
from holdfast.federated.aggregation import build_aggregator
from holdfast.models import build
from tests.federated.aggregation.test_bounds import BOUNDS
from tests.federated.toy import linear, toy_clients

SHARE = 0.2
RULES = sorted(BOUNDS)
#: Clients with five digits each, and clients with a random part of all.
CLIENTS = {"unlike": DigitsClients(), "alike": Partitioned(partition="iid")}
SMALL = Rounds(rounds=3, cohort=8, batch_size=8, evaluate_every=0, executor="serial")


def bearable(rule, cohort, rounds):
    """The cohort, or one that is large enough for the rule."""
    expected = Expectation(SHARE).resolve(50, Rounds(cohort=cohort, rounds=rounds), None)
    return expected.bearable_cohort(rule) if expected.overwhelms(rule) else cohort


@pytest.mark.parametrize("cohort", [50, 25])
@pytest.mark.parametrize("name", [name for name in RULES if build_aggregator(name).covers in CLIENTS])
def test_huge_noise_by_a_fifth_costs_at_most_five_points_among_the_clients_that_a_rule_covers(name, cohort):
    rule = build_aggregator(name)
    clients = CLIENTS[rule.covers].load(Path())
    work = Rounds(rounds=40, cohort=bearable(rule, cohort, 40), learning_rate=0.3, evaluate_every=0, executor="batched")

    def accuracy(threat):
        outcome = federate(
            clients, build("softmax", (1, 8, 8), 10), work, aggregator=rule, threat=threat, expect_malicious=SHARE
        )
        assert outcome.divergence is None
        return outcome.reports["global"].mean

    assert accuracy(Threat(Gaussian(1e20), SHARE)) >= accuracy(None) - 0.05


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(RULES),
    attack=st.sampled_from(sorted(set(ATTACKS) - {"gaussian"})) | st.floats(0, 37).map(lambda power: 10.0**power),
    malicious=st.integers(1, 3),
    double=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_whatever_the_attack_and_its_size_the_shared_model_stays_where_honest_clients_can_take_it(
    name, attack, malicious, double, seed
):
    """An honest step of these clients is shorter than 1, and three rounds of a bounded rule take it nowhere far."""
    rule = build_aggregator(name)
    malicious = min(malicious, rule.stands(8))
    threat = Threat(Gaussian(attack) if isinstance(attack, float) else ATTACKS.find(attack)(), malicious / 8)
    dtype = torch.float64 if double else torch.float32
    outcome = federate(
        toy_clients(dtype=dtype), linear().to(dtype), replace(SMALL, seed=seed), aggregator=rule, threat=threat
    )
    assert outcome.expected.f == malicious
    assert outcome.divergence is None and outcome.diverged_at is None
    farthest = 3 * (1 + 6**0.5) * 2  # the widest of the bounds, Krum's of eight, on steps of length 1
    assert float((outcome.weights - outcome.network.initial).norm()) < farthest


def test_the_same_noise_takes_the_mean_anywhere():
    outcome = federate(toy_clients(), linear(), SMALL, threat=Threat(Gaussian(1e20), 0.25))
    assert outcome.divergence is not None
    assert float((outcome.weights - outcome.network.initial).norm()) > 1e19
