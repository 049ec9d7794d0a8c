"""Where a personal model starts, and how many steps it takes in a round, against a plain loop over single clients."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from holdfast.errors import ConfigError
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.selection import select
from holdfast.federated.personalization import Ditto, Local, resolve
from tests.federated.personalization.toy import SETTINGS, Recording, clients, model, rows, run
from tests.federated.toy import convolutional, toy_clients


def gradient(weights, inputs, labels):
    net = model()
    vector_to_parameters(weights, net.parameters())
    return parameters_to_vector(torch.autograd.grad(F.cross_entropy(net(inputs), labels), list(net.parameters())))


def by_hand(data, received, rounds, *, lambda_, start, steps):
    """Personal models by client: one loop over rounds, one over clients, one over batches."""
    stream, personal, joined = BatchStream(rounds.seed, rounds.batch_size), {}, dict.fromkeys(range(len(data)), 0)
    malicious = torch.zeros(len(data), dtype=torch.bool)
    for number, shared in enumerate(received):
        for client in select(rounds, number, data.train.counts, malicious).tolist():
            v = personal.get(client, shared if start == "shared" else received[0])
            inputs, labels = data.train.of(client)
            for chosen in stream.rows(client, len(labels), joined[client] * steps, steps):
                v = v - rounds.learning_rate * (gradient(v, inputs[chosen], labels[chosen]) + lambda_ * (v - shared))
            personal[client] = v
            joined[client] += 1
    return personal


@settings(max_examples=20, deadline=None)
@given(
    start=st.sampled_from(["shared", "initial"]),
    steps=st.none() | st.integers(1, 6),
    local_steps=st.integers(1, 4),
    lambda_=st.sampled_from([0.0, 0.3, 2.0]),
    seed=st.integers(0, 5),
    executor=st.sampled_from(["serial", "batched"]),
)
def test_personal_models_are_those_of_a_plain_loop(*, start, steps, local_steps, lambda_, seed, executor):
    rounds = replace(SETTINGS, seed=seed, local_steps=local_steps, executor=executor, chunk=3)
    recording = Recording()
    outcome = run(Ditto(lambda_, start=start, steps=steps), settings=rounds, aggregator=recording)
    received = [outcome.network.initial]
    for step in recording.steps[:-1]:
        received.append(received[-1] + step)
    expected = by_hand(clients(), received, rounds, lambda_=lambda_, start=start, steps=steps or local_steps)
    assert outcome.runtime.stores[f"ditto-{lambda_:g}"].written.nonzero().flatten().tolist() == sorted(expected)
    for client, v in expected.items():
        torch.testing.assert_close(rows(outcome, f"ditto-{lambda_:g}")[client], v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", ["auto", "parallel", 0.7])
@pytest.mark.parametrize("start", ["shared", "initial"])
@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_as_many_steps_as_the_shared_model_are_the_default_to_the_bit(rule, start, executor):
    rounds = replace(SETTINGS, executor=executor, chunk=3)
    kept = []
    for steps in (None, SETTINGS.local_steps):
        outcome = run(Ditto(rule, start=start, steps=steps), settings=rounds)
        kept.append(rows(outcome, next(iter(outcome.runtime.stores))))
    assert torch.equal(*kept)


@pytest.mark.parametrize("rule", ["auto", "parallel", 0.7])
@pytest.mark.parametrize("changed", [{"start": "initial"}, {"steps": 1}, {"steps": 5}])
def test_start_and_steps_matter_and_the_shared_model_does_not_notice(rule, changed):
    usual, other = run(Ditto(rule)), run(Ditto(rule, **changed))
    label = next(iter(usual.runtime.stores))
    assert torch.equal(usual.weights, other.weights)
    assert not torch.allclose(rows(usual, label), rows(other, label))


def test_clients_of_the_first_round_start_in_the_same_place_either_way():
    rounds = replace(SETTINGS, rounds=1)
    kept = [rows(run(Ditto(0.5, start=start), settings=rounds), "ditto-0.5") for start in ("shared", "initial")]
    assert torch.equal(*kept)


def test_how_often_lambdas_were_chosen_is_counted_from_the_first_step_on():
    outcome = run(Ditto(steps=3))
    (method,) = outcome.runtime.alongside
    chosen = method.chosen(outcome.runtime.stores[method.label], outcome.runtime.training)
    assert chosen.sum(1).tolist() == (3 * outcome.joined).tolist()


@pytest.mark.parametrize("kind", [{"dropout": 0.5}, {"norm": True, "tracked": True}], ids=["dropout", "statistics"])
@pytest.mark.parametrize("method", [Ditto(1.0), Ditto(1.0, steps=3), Ditto("parallel", steps=2)])
def test_random_layers_and_running_statistics_are_the_same_alone_and_stacked(kind, method):
    """Stacks of one batch size, so that statistics are of a client's own batch."""
    data = toy_clients(sizes=(8, 24, 16, 32, 8, 16), shape=(1, 8, 8))
    kept = []
    for executor in ("serial", "batched"):
        rounds = replace(SETTINGS, executor=executor, chunk=3, cohort=3)
        outcome = run(method, Local(), settings=rounds, data=data, net=convolutional(**kind))
        kept.append(rows(outcome, next(iter(outcome.runtime.stores))))
    torch.testing.assert_close(*kept, rtol=1e-4, atol=1e-5)


def test_a_choosing_ditto_keeps_start_and_steps():
    for rule in ("auto", "parallel"):
        (method,) = resolve([Ditto(rule, start="initial", steps=7)], False)
        assert (method.start, method.steps) == ("initial", 7)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"steps": 0}, "Ditto's steps are 0"), ({"steps": 2, "anchor": "local"}, "leave out one of the two")],
)
@pytest.mark.parametrize("rule", ["auto", "parallel", 1.0])
def test_steps_that_make_no_sense_are_refused(rule, wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        resolve([Ditto(rule, **wrong)], False)
