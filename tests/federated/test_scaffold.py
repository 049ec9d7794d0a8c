"""SCAFFOLD against a loop of NumPy that shares nothing with it but who is drawn and which examples are in a batch."""

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.federated import (
    Ditto,
    FedAvg,
    Gaussian,
    ModelReplacement,
    OptimisedLittleIsEnough,
    PFedMe,
    Rounds,
    Threat,
    federate,
)
from holdfast.federated.aggregation import AGGREGATORS, build_aggregator
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.client_runtime import SECOND
from holdfast.federated.engine.selection import select
from holdfast.federated.scaffold import Scaffold
from tests.federated.toy import convolutional, linear, toy_clients

SETTINGS = Rounds(
    rounds=7, cohort=3, batch_size=8, local_epochs=2, learning_rate=0.3, halve_every=4, evaluate_every=0,
    executor="batched", chunk=2,
)  # fmt: skip
CLIENTS = toy_clients(dtype=torch.float64)
EVERYBODY = torch.arange(len(CLIENTS))


def run(objective, settings=SETTINGS, model=None, clients=CLIENTS, **options):
    return federate(clients, model or linear().double(), settings, objective=objective, **options)


def in_numpy(settings, server_rate):
    """Algorithm 1 of the paper with option II, for softmax regression."""
    part = CLIENTS.train
    inputs, labels, offsets = part.inputs.numpy(), part.labels.numpy(), part.offsets.tolist()
    start = linear().double()
    x = np.concatenate([start.weight.detach().numpy().ravel(), start.bias.detach().numpy()])
    c, own = np.zeros_like(x), np.zeros((len(CLIENTS), len(x)))
    drawn, stream = [0] * len(CLIENTS), BatchStream(settings.seed, settings.batch_size)
    for number in range(settings.rounds):
        rate = settings.learning_rate * settings.decay(number)
        cohort = select(settings, number, part.counts, torch.zeros(len(CLIENTS), dtype=torch.bool)).tolist()
        moves, changes = [], []
        for client in cohort:
            size = offsets[client + 1] - offsets[client]
            steps = settings.local_epochs * max(size // settings.batch_size, 1)
            y = x.copy()
            for rows in stream.rows(client, size, drawn[client], steps).numpy():
                data, classes = inputs[offsets[client] + rows], labels[offsets[client] + rows]
                logits = data @ y[:18].reshape(3, 6).T + y[18:]
                share = np.exp(logits - logits.max(1, keepdims=True))
                share /= share.sum(1, keepdims=True)
                share[np.arange(len(rows)), classes] -= 1
                gradient = np.concatenate([(share.T @ data).ravel(), share.sum(0)]) / len(rows)
                y -= rate * (gradient - own[client] + c)
            drawn[client] += steps
            after = own[client] - c + (x - y) / (steps * rate)
            moves.append(y - x)
            changes.append(after - own[client])
            own[client] = after
        x = x + server_rate * np.mean(moves, axis=0)
        c = c + len(cohort) / len(CLIENTS) * np.mean(changes, axis=0)
    return x, c, own


@pytest.mark.parametrize("server_rate", [1.0, 0.7])
def test_sampled_cohorts_with_uneven_steps_are_those_of_numpy(server_rate):
    found = run(Scaffold(server_rate))
    x, c, own = in_numpy(SETTINGS, server_rate)
    torch.testing.assert_close(found.weights, torch.from_numpy(x), rtol=0, atol=1e-10)
    rows = found.runtime.stores[SECOND].read(EVERYBODY)
    torch.testing.assert_close(rows, torch.from_numpy(own), rtol=0, atol=1e-10)
    np.testing.assert_allclose(rows.mean(0).numpy(), c, atol=1e-10)  # c is the mean of all c_i, in every round
    assert (found.weights - run(FedAvg()).weights).abs().max() > 1e-2


def test_in_the_first_round_it_is_federated_averaging_with_messages_twice_as_long():
    once = Rounds(**{**vars(SETTINGS), "rounds": 1})
    scaffold, fedavg = run(Scaffold(), once), run(FedAvg(), once)
    assert torch.equal(scaffold.weights, fedavg.weights)
    assert scaffold.bytes_up == 2 * fedavg.bytes_up
    assert scaffold.bytes_down == 2 * fedavg.bytes_down


def test_with_full_gradients_of_all_clients_drift_vanishes_where_federated_averaging_keeps_it():
    """Two quadratic clients: FedAvg with many steps ends away from the optimum of the sum, SCAFFOLD on it."""
    from holdfast.data.clients.clients import ClientPart, Clients

    inputs = torch.tensor([[1.0], [1.0], [3.0], [3.0]], dtype=torch.float64)
    targets = torch.tensor([1.0, 1.0, -3.0, -3.0], dtype=torch.float64)
    part = ClientPart(inputs, targets, torch.tensor([0, 2, 4]))
    clients = Clients(part, part, part, 1, task="regression")
    model = nn.Linear(1, 1, bias=False).double()
    settings = Rounds(
        rounds=60, cohort=2, batch_size=2, local_steps=10, learning_rate=0.02, evaluate_every=0, executor="serial"
    )
    square = {"loss": lambda outputs, targets: (outputs.flatten() - targets.flatten()) ** 2}
    optimum = (1 * 1 + 3 * -3) / (1 + 9)
    found = {
        name: float(federate(clients, model, settings, objective=each, **square).weights[0])
        for name, each in {"scaffold": Scaffold(), "fedavg": FedAvg()}.items()
    }
    assert found["scaffold"] == pytest.approx(optimum, abs=1e-6)
    assert abs(found["fedavg"] - optimum) > 0.05


@pytest.mark.parametrize("kind", ["linear", "batch norm"])
def test_all_executors_agree_and_ditto_beside_it_never_feeds_back(kind):
    clients = toy_clients() if kind == "linear" else toy_clients(shape=(1, 8, 8))
    model = linear() if kind == "linear" else convolutional(norm=True, tracked=True)
    plain = Rounds(rounds=4, cohort=4, batch_size=4, learning_rate=0.1, evaluate_every=0)
    ways = {"serial": {}, "batched": {"chunk": 3}, "pool": {"chunk": 2, "workers": 2}}
    settings = {name: Rounds(**{**vars(plain), "executor": name, **more}) for name, more in ways.items()}
    found = {name: run(Scaffold(), each, model, clients, personalize=[Ditto(0.5)]) for name, each in settings.items()}
    for other in ("batched", "pool"):
        torch.testing.assert_close(found["serial"].weights, found[other].weights, rtol=1e-4, atol=2e-5)
        rows = [found[name].runtime.stores[SECOND].read(EVERYBODY) for name in ("serial", other)]
        torch.testing.assert_close(*rows, rtol=1e-3, atol=1e-4)
    alone = run(Scaffold(), Rounds(**{**vars(plain), "executor": "serial"}), model, clients)
    assert torch.equal(alone.weights, found["serial"].weights)
    trainable = alone.network.trainable
    assert not alone.runtime.stores[SECOND].read(EVERYBODY)[:, trainable:].any()


def test_clipping_bounds_what_attackers_add_to_the_control_variate():
    """Ten times as wild an attack moves the server's c no further, since the norm that is cut to is an honest one."""
    weights = []
    for sigma in (1e3, 1e6):
        everybody = Rounds(**{**vars(SETTINGS), "cohort": 8})
        rule = build_aggregator("clipping")
        found = run(Scaffold(), everybody, aggregator=rule, threat=Threat(Gaussian(sigma), 0.25))
        weights.append(found.weights)
        assert found.weights.isfinite().all()
        assert found.weights.abs().max() < 1e2
    torch.testing.assert_close(*weights)


@pytest.mark.parametrize("attack", [ModelReplacement(), OptimisedLittleIsEnough(evaluations=3)], ids=lambda a: a.name)
def test_attackers_forge_both_vectors(attack):
    settings = Rounds(rounds=3, cohort=8, batch_size=8, learning_rate=0.1, evaluate_every=0, executor="serial")
    found = run(Scaffold(), settings, threat=Threat(attack, 0.25))
    own = found.runtime.stores[SECOND].read(EVERYBODY).double().mean(0)
    assert (found.runtime.second is not None) and found.weights.isfinite().all()
    assert (found.weights - run(Scaffold(), settings).weights).abs().max() > 1e-3
    assert own.isfinite().all()


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if not AGGREGATORS[name]().averages])
def test_rules_that_promise_nothing_about_a_sum_over_rounds_are_refused(name):
    with pytest.raises(ConfigError, match=f"adds up what clients say of their gradients over all rounds, and {name}"):
        run(Scaffold(), aggregator=AGGREGATORS[name](), expect_malicious=0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"personalize": [PFedMe()]}, "so scaffold can't correct its steps"),
        ({"settings": Rounds(**{**vars(SETTINGS), "optimizer": "adam"})}, "scaffold is defined by gradient steps"),
    ],
)
def test_what_can_not_be_corrected_is_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        run(Scaffold(), **options)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_server_learning_rate_that_is_no_positive_number_is_refused(rate):
    with pytest.raises(ConfigError, match="give a positive number"):
        Scaffold(rate)


def test_a_client_whose_model_is_not_finite_keeps_the_control_variate_it_had():
    wild = Rounds(**{**vars(SETTINGS), "learning_rate": 1e38, "rounds": 3})
    found = run(Scaffold(), wild, linear(), toy_clients())
    assert found.dropped > 0
    assert found.runtime.stores[SECOND].read(EVERYBODY).isfinite().all()
