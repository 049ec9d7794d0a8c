"""Ditto with personal layers, and with other distances than the straight one, against plain loops."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from holdfast.errors import ConfigError
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.selection import select
from holdfast.federated.personalization import Ditto, resolve
from holdfast.federated.personalization.ditto import ditto as module
from tests.federated.personalization.partial.plain import in_double
from tests.federated.personalization.toy import SETTINGS, Recording, model, rows, run

EVERYBODY = torch.arange(8)
HEAD = torch.arange(30, 51)  # 6 x 3 weights and 3 biases behind 4 x 6 weights and 6 biases


def net_of(weights):
    net = model().double()
    vector_to_parameters(weights, net.parameters())
    return net


def gradient(weights, inputs, labels):
    net = net_of(weights)
    return parameters_to_vector(torch.autograd.grad(F.cross_entropy(net(inputs), labels), list(net.parameters())))


def fisher(weights, shared, inputs, labels, batches):
    squares = torch.stack([gradient(shared, inputs[rows], labels[rows]) ** 2 for rows in batches])
    return squares.mean(0) * (weights - shared)


def divergence(weights, shared, inputs):
    net, other = net_of(weights), net_of(shared)
    ours, theirs = (torch.distributions.Categorical(logits=each(inputs)) for each in (net, other))
    both = torch.distributions.kl_divergence(ours, theirs) + torch.distributions.kl_divergence(theirs, ours)
    return parameters_to_vector(torch.autograd.grad(both.mean() / 2, list(net.parameters())))


def by_hand(data, received, rounds, lambda_, *, layers=False, distance="l2"):
    """Personal models by client."""
    stream, personal, joined = BatchStream(rounds.seed, rounds.batch_size), {}, [0] * len(data)
    for number, shared in enumerate(received):
        for client in select(rounds, number, data.train.counts, torch.zeros(len(data), dtype=torch.bool)).tolist():
            v = personal.get(client, shared).clone()
            if layers:
                v[:30] = shared[:30]
            inputs, labels = data.train.of(client)
            drawn = joined[client] * rounds.local_steps
            four = stream.rows(client, len(labels), drawn, 4)
            for chosen in stream.rows(client, len(labels), drawn, rounds.local_steps):
                if distance == "ewc":
                    away = fisher(v, shared, inputs, labels, four)
                else:
                    away = v - shared if distance == "l2" else divergence(v, shared, inputs[chosen])
                step = gradient(v, inputs[chosen], labels[chosen]) + lambda_ * away
                v = v - rounds.learning_rate * (step * (torch.arange(51) >= 30) if layers else step)
            personal[client] = v
            joined[client] += 1
    return personal


@pytest.mark.parametrize("executor", ["serial", "batched"])
@pytest.mark.parametrize(
    "options",
    [{"layers": True}, {"distance": "ewc"}, {"distance": "skl"}, {"layers": True, "distance": "skl"}],
    ids=["layers", "ewc", "skl", "layers and skl"],
)
def test_personal_models_are_those_of_a_plain_loop(options, executor):
    rounds, recording, data = replace(SETTINGS, executor=executor, chunk=3), Recording(), in_double()
    given = {**options, "layers": ("head",)} if "layers" in options else options
    method = Ditto(0.7, **given)
    outcome = run(method, settings=rounds, data=data, net=model().double(), aggregator=recording)
    received = [outcome.network.initial]
    for step in recording.steps[:-1]:
        received.append(received[-1] + step)
    expected = by_hand(data, received, rounds, 0.7, **options)
    personal = outcome.runtime.personal(method.label, EVERYBODY, outcome.weights)
    for client, v in expected.items():
        newest = torch.cat([outcome.weights[:30], v[30:]]) if "layers" in options else v
        torch.testing.assert_close(personal[client], newest, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("lambda_", [0.5, "auto", "parallel"])
@pytest.mark.parametrize("start", ["shared", "initial"])
def test_what_is_not_personal_is_the_newest_shared_model_s(lambda_, start):
    method = Ditto(lambda_, layers=("head",), start=start)
    outcome = run(method)
    label = resolve([method], False)[0].label
    assert label.endswith("-head")
    personal = outcome.runtime.personal(label, EVERYBODY, outcome.weights)
    assert (personal[:, :30] == outcome.weights[:30]).all()
    assert ((personal[:, HEAD] - outcome.weights[HEAD]).norm(dim=1) > 1e-3)[outcome.joined > 0].all()


def test_statistics_of_layers_that_are_not_personal_are_the_shared_ones():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    outcome = run(Ditto(0.5, layers=("head",)), net=net)
    personal = outcome.runtime.personal("ditto-0.5-head", EVERYBODY, outcome.weights)
    slices = outcome.network.slices
    for name in ("1.running_mean", "1.running_var", "1.weight", "0.weight"):
        assert torch.equal(personal[:, slices[name]], outcome.weights[slices[name]].expand(8, -1))


def test_the_shared_model_is_the_same_whatever_is_personal():
    plain = run(Ditto(0.5))
    for options in ({"layers": ("head",)}, {"distance": "ewc"}, {"distance": "skl"}):
        assert torch.equal(run(Ditto(0.5, **options)).weights, plain.weights)


def test_where_every_parameter_matters_the_same_the_distance_is_the_straight_one(monkeypatch):
    monkeypatch.setattr(module, "fisher_diagonal", lambda stack: torch.ones(len(stack), len(stack.received)))
    found, expected = (run(Ditto(0.7, distance=distance)) for distance in ("ewc", "l2"))
    torch.testing.assert_close(rows(found, "ditto-0.7-ewc"), rows(expected, "ditto-0.7"), rtol=0, atol=1e-6)


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match=r"no layer 'haed' for ditto; did you mean 'head'"):
        run(Ditto(0.5, layers=("haed",)))
    with pytest.raises(ConfigError, match="the distance ewc is measured from the received model"):
        Ditto(0.5, distance="ewc", anchor="local")
    run(Ditto(50.0, distance="ewc"), settings=replace(SETTINGS, rounds=1))  # overshoots in no known way
