"""Ditto's exact identities and trajectories, run through the whole engine."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Clipping, Krum, Mean, Median
from holdfast.federated.attacks import LabelPoisoning, ModelReplacement, RandomUpdates
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.network import Network
from holdfast.federated.federation import federate
from holdfast.federated.objectives import FedAvg, FedProx, Term
from holdfast.federated.personalization import Ditto, DynamicDitto, FineTuning, Local
from holdfast.federated.settings import Rounds
from holdfast.theory.ditto import ditto_trajectory
from tests.federated.personalization.toy import SETTINGS, Point, Recording, Squares, model, points, rows, run

EXPLODING = Threat(ModelReplacement(boost=1e25), 0.5)


# -------------------------------------------------------------------------------------------------- lambda 0 is alone


def alone(data, client, steps, settings):
    """Local SGD by a plain torch loop over the client's batches."""
    net = model()
    inputs, labels = data.train.of(client)
    stream = BatchStream(settings.seed, settings.batch_size)
    for chosen in stream.rows(client, len(labels), 0, steps) if steps else []:
        loss = F.cross_entropy(net(inputs[chosen]), labels[chosen])
        for parameter, gradient in zip(
            net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
        ):
            parameter.data.sub_(gradient, alpha=settings.learning_rate)
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


@pytest.mark.parametrize(
    ("aggregator", "objective"),
    [(Mean(), FedAvg()), (Median(), FedAvg()), (Krum(), FedAvg()), (Clipping(), FedProx(0.5)), (Mean(), Term())],
    ids=["mean", "median", "krum", "clipping-fedprox", "term"],
)
def test_with_lambda_0_a_client_trains_alone_to_the_bit_while_the_shared_model_explodes(aggregator, objective):
    ditto = Ditto(0.0, start="initial")
    outcome = run(ditto, Local(), threat=EXPLODING, expect_malicious=0, aggregator=aggregator, objective=objective)
    if objective == FedAvg() and aggregator == Mean():
        assert outcome.weights.abs().max() > 1e20
    expected = torch.stack(
        [
            alone(outcome.runtime.clients, client, joined * SETTINGS.local_steps, SETTINGS)
            for client, joined in enumerate(outcome.joined.tolist())
        ]
    )
    assert torch.equal(rows(outcome, "ditto-0"), expected)
    assert torch.equal(rows(outcome, "local"), expected)


def test_with_lambda_0_not_even_an_infinite_anchor_matters():
    gradient, models = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    network = Network(torch.nn.Linear(1, 1))
    assert torch.equal(network.with_proximal(gradient, models, (0.0, torch.full((2,), torch.inf))), gradient)


def test_local_models_of_benign_clients_are_the_same_under_every_attack():
    """All take part: a client that never does is evaluated with the shared model."""
    outcomes = [
        run(Local(), threat=Threat(attack, 0.5), settings=replace(SETTINGS, sampling="uniform", rounds=8))
        for attack in (LabelPoisoning(), RandomUpdates(), ModelReplacement())
    ]
    assert outcomes[0].joined.min() > 0
    assert not torch.equal(outcomes[0].weights, outcomes[1].weights)
    reports = [outcome.reports["local"] for outcome in outcomes]
    for report in reports[1:]:
        assert torch.equal(report.accuracies, reports[0].accuracies)
        assert report.summary() == reports[0].summary()


# -------------------------------------------------------------------------------------------------- no way back


@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_the_shared_model_is_that_of_the_method_underneath_in_every_round(executor):
    settings = replace(SETTINGS, executor=executor, chunk=3 if executor == "batched" else None)

    def trajectory(*methods):
        recording = Recording()
        outcome = run(*methods, settings=settings, aggregator=recording, threat=Threat(LabelPoisoning(), 0.3))
        return [*recording.steps, outcome.weights]

    plain = trajectory()
    assert len(plain) == SETTINGS.rounds + 1
    for methods in [(Ditto(0.0),), (Ditto(0.3),), (Ditto(7.0),), (DynamicDitto(), Local(), Ditto(1.0))]:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(trajectory(*methods), plain, strict=True))


@pytest.mark.parametrize(("objective", "reported"), [(FedAvg(), 0), (Term(), 8)], ids=["fedavg", "term"])
def test_personal_models_cost_no_communication(objective, reported):
    plain = run(objective=objective)
    ditto = run(Ditto(1.0), DynamicDitto(), objective=objective)
    assert (ditto.bytes_up, ditto.bytes_down) == (plain.bytes_up, plain.bytes_down)
    messages = SETTINGS.rounds * SETTINGS.cohort
    assert ditto.bytes_up == messages * (4 * ditto.network.size + reported)
    assert ditto.bytes_down == messages * 4 * ditto.network.size


# -------------------------------------------------------------------------------------------------- trajectories


@pytest.fixture
def on_points(monkeypatch):
    """`federate` on F_k(w) = (w - x_k)^2 / 2, everybody in every round."""
    monkeypatch.setattr("holdfast.federated.preparation.Network", Squares)

    def go(values, method, rounds, **given):
        settings = Rounds(
            rounds=rounds, cohort=len(values), batch_size=1, evaluate_every=0, executor="batched", **given
        )
        outcome = federate(points(values), Point(), settings, personalize=[method])
        return float(outcome.weights), rows(outcome, method.label).flatten().tolist()

    return go


@dataclass(frozen=True)
class PulledToTheNextModel(Ditto):
    """A wrong Ditto, pulled to the mean of what clients are about to send."""

    def step(self, rows, batch, local, stack):
        gradient = stack.gradient(rows, batch) + self.strength * (rows - local.mean(0))
        rows.sub_(gradient, alpha=stack.personal_rate)


TWO = {"learning_rate": 0.5, "local_steps": 1, "chunk": 2}


def test_three_rounds_of_two_clients_are_the_reference(on_points):
    found = [on_points([1, 3], Ditto(1.0), rounds, **TWO) for rounds in (1, 2, 3)]
    assert found == [(1.0, [0.5, 1.5]), (1.5, [1.0, 2.0]), (1.75, [1.25, 2.25])]


@pytest.mark.parametrize(
    ("method", "first"), [(Ditto(1.0, anchor="local"), [0.75, 2.25]), (PulledToTheNextModel(1.0), [1.0, 2.0])]
)
def test_another_anchor_gives_another_first_round(on_points, method, first):
    assert on_points([1, 3], method, 1, **TWO) == (1.0, first)


@pytest.mark.parametrize(("steps", "own"), [(1, None), (3, None), (1, 4), (3, 1)])
@pytest.mark.parametrize("lambda_", [0.0, 0.7, 4.0])
def test_rounds_follow_the_closed_form(on_points, steps, own, lambda_):
    values, rates = [1.0, 3.0, -2.0], {"learning_rate": 0.3, "personal_learning_rate": 0.2}
    w, v = ditto_trajectory(
        values, 7, lambda_=lambda_, global_step=0.3, personal_step=0.2, global_steps=steps, personal_steps=own or steps
    )
    shared, personal = on_points(values, Ditto(lambda_, steps=own), 7, local_steps=steps, **rates)
    assert shared == pytest.approx(w[-1], abs=1e-6)
    np.testing.assert_allclose(personal, v[-1], atol=1e-6)


def test_joint_and_fine_tuning_solvers_end_at_the_same_models():
    """Logistic regression with a penalty on weights: strongly convex, so there is one personal optimum."""
    net = nn.Linear(4, 3, bias=False)
    nn.init.zeros_(net.weight)
    net.weight_penalty = 0.25
    settings = replace(
        SETTINGS, rounds=120, cohort=8, batch_size=64, local_steps=1, learning_rate=0.5, executor="batched", chunk=8
    )
    outcome = run(Ditto(0.5), FineTuning(lambda_=0.5, epochs=120), settings=settings, net=net)
    joint, tuned = rows(outcome, "ditto-0.5"), rows(outcome, "finetuning-0.5")
    torch.testing.assert_close(joint, tuned, rtol=0, atol=1e-6)
    assert (joint - outcome.weights).norm(dim=1).min() > 1e-2


# -------------------------------------------------------------------------------------------------- guards


def test_a_pull_that_overshoots_is_refused_before_the_first_round():
    with pytest.raises(ConfigError, match=r"lambda 20 times the learning rate 0\.1 is 2 or more"):
        run(Ditto(20.0))
    run(Ditto(19.9), settings=replace(SETTINGS, rounds=1))


def test_a_negative_lambda_is_refused():
    with pytest.raises(ConfigError, match="lambda is -1"):
        Ditto(-1.0)


def test_clients_that_never_took_part_are_evaluated_with_the_shared_model():
    outcome = run(Ditto(1.0), settings=replace(SETTINGS, rounds=1))
    absent = int((outcome.joined == 0).nonzero()[0])
    personal = outcome.runtime.personal("ditto-1", torch.tensor([absent]), outcome.weights)[0]
    assert torch.equal(personal, outcome.weights)
    assert not torch.equal(personal, outcome.network.initial)
