"""The surrogate federation S(q), without downloads: what Ditto claims, in the orderings that its design promises.

All rows, three seeds and the printed numbers are ``holdfast reproduce ditto/surrogate --scale cpu``; here is one seed.
"""

from functools import cache

import numpy as np
import pytest
import torch

from holdfast.data import load_federation
from holdfast.federated import (
    Aggregator,
    Ditto,
    FedAvg,
    FederatedObjective,
    KLoss,
    KNorm,
    LabelPoisoning,
    Local,
    ModelReplacement,
    MultiKrum,
    RandomUpdates,
    Rounds,
    Term,
    Threat,
    federate,
)
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.selection import select
from holdfast.federated.expectation import Expectation
from holdfast.federated.result import FederationResult
from holdfast.models import build

THREATS = {
    "clean": None,
    "a1-50": Threat(LabelPoisoning(), 0.5),
    "a1-80": Threat(LabelPoisoning(), 0.8),
    "a2-50": Threat(RandomUpdates(), 0.5),
    "a3-20": Threat(ModelReplacement(), 0.2),
}
ALONGSIDE = (Local(), Ditto(0.1), Ditto(1.0), Ditto(2.0))


@cache
def run(
    q: int,
    threat: str,
    objective: FederatedObjective | None = None,
    aggregator: Aggregator | None = None,
    alongside: tuple[Ditto | Local, ...] = (),
) -> FederationResult:
    clients = load_federation("surrogate", q=q)
    settings = Rounds(
        rounds=600, cohort=10, batch_size=16, local_steps=2, learning_rate=0.1, evaluate_every=0, executor="batched"
    )
    model = build("softmax", clients.input_shape, clients.classes)
    return federate(
        clients,
        model,
        settings,
        objective=objective,
        aggregator=aggregator,
        threat=THREATS[threat],
        personalize=alongside,
        expect_malicious=Expectation(expect_by="mean"),
    )


def means(q: int, threat: str) -> dict[str, float]:
    return {label: report.mean for label, report in run(q, threat, alongside=ALONGSIDE).reports.items()}


@pytest.mark.parametrize("threat", THREATS)
def test_where_clients_differ_in_features_the_best_ditto_beats_both_the_shared_model_and_training_alone(threat):
    found = means(10, threat)
    assert max(found[f"ditto-{lam}"] for lam in ("0.1", "1", "2")) > max(found["global"], found["local"])


@pytest.mark.parametrize("threat", THREATS)
def test_where_clients_have_few_classes_a_small_lambda_wins_and_larger_ones_lose_in_turn(threat):
    found = means(5, threat)
    assert found["global"] < found["local"] < found["ditto-0.1"]
    assert found["ditto-0.1"] > found["ditto-1"] > found["ditto-2"]


@pytest.mark.parametrize("threat", ["a1-50", "a3-20"])
def test_fairness_makes_attacks_worse_the_more_the_fairer(threat):
    plain, tilted, more = (
        run(10, threat, objective).reports["global"].mean for objective in (FedAvg(), Term(1.0), Term(5.0))
    )
    assert more < tilted < plain


def test_fairness_costs_nothing_where_nobody_attacks():
    plain, tilted, more = (
        run(10, "clean", objective).reports["global"].mean for objective in (FedAvg(), Term(1.0), Term(5.0))
    )
    assert abs(tilted - plain) <= 0.01
    assert abs(more - plain) <= 0.01


def test_rules_that_drop_attackers_are_the_mean_where_there_are_none():
    for rule in (KNorm(), MultiKrum()):
        assert torch.equal(run(10, "clean", aggregator=rule).weights, run(10, "clean").weights)


def test_k_loss_falls_to_model_replacement_and_stands_label_poisoning_by_a_majority():
    assert run(10, "a3-20", aggregator=KLoss()).reports["global"].mean < means(10, "a3-20")["global"]
    assert run(10, "a1-80", aggregator=KLoss()).reports["global"].mean > means(10, "a1-80")["global"]


def test_model_replacement_is_what_a_plain_loop_gives_on_the_same_draws():
    """Where our A3 numbers differ from the designed ones, data and draws do: the federation is replayed in NumPy."""
    outcome = run(10, "a3-20")
    threat, clients = THREATS["a3-20"], load_federation("surrogate", q=10)
    assert threat is not None
    settings = Rounds(rounds=600, cohort=10, batch_size=16, local_steps=2, learning_rate=0.1)
    malicious = set(outcome.malicious.tolist())
    data = threat.poison(clients, outcome.malicious, 0).train
    inputs, labels, offsets = data.inputs.double().numpy(), data.labels.numpy(), data.offsets.tolist()
    model = build("softmax", clients.input_shape, clients.classes)
    weight, bias = (parameter.detach().double().numpy() for parameter in model.parameters())
    stream, drawn = BatchStream(0, 16), dict.fromkeys(range(len(clients)), 0)
    for number in range(settings.rounds):
        steps = []
        for client in select(settings, number, clients.train.counts, outcome.malicious).tolist():
            own_weight, own_bias = weight.copy(), bias.copy()
            first, size = offsets[client], offsets[client + 1] - offsets[client]
            for rows in stream.rows(client, size, drawn[client], 2).numpy() + first:
                logits = inputs[rows] @ own_weight.T + own_bias
                wrong = np.exp(logits - logits.max(1, keepdims=True))
                wrong /= wrong.sum(1, keepdims=True)
                wrong[np.arange(len(rows)), labels[rows]] -= 1
                own_weight -= 0.1 / len(rows) * wrong.T @ inputs[rows]
                own_bias -= 0.1 / len(rows) * wrong.sum(0)
            drawn[client] += 2
            boost = 10 if client in malicious else 1
            steps.append((boost * (own_weight - weight), boost * (own_bias - bias)))
        weight = weight + np.mean([step[0] for step in steps], axis=0)
        bias = bias + np.mean([step[1] for step in steps], axis=0)
    replayed = torch.from_numpy(np.concatenate([weight.ravel(), bias]))
    torch.testing.assert_close(outcome.weights.double(), replayed, rtol=0, atol=1e-5)
