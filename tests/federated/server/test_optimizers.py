"""Server optimizers against Flower's own strategies, and inside a federation."""

from dataclasses import fields

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated import Afl, QFair, Rounds, Term, federate
from holdfast.federated.aggregation import Median
from holdfast.federated.server.optimizers import SERVER_OPTIMIZERS, FedAdagrad, FedAdam, FedAvgM, FedYogi
from tests.federated.toy import convolutional, linear, toy_clients

SETTINGS = Rounds(rounds=4, cohort=4, batch_size=8, learning_rate=0.1, evaluate_every=0, executor="serial")


def walk(optimizer, aggregates):
    """Where a model of zeros is after each aggregate."""
    moments, model = optimizer.begin(aggregates.shape[1]), torch.zeros(aggregates.shape[1], dtype=torch.float64)
    every = torch.ones(aggregates.shape[1], dtype=torch.bool)
    for aggregate in aggregates:
        step, moments = optimizer.step(aggregate, moments, every)
        model = model + step
        yield model


def test_momentum_is_that_of_torch():
    aggregates = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameter = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    peer = torch.optim.SGD([parameter], lr=0.3, momentum=0.8)
    for aggregate, model in zip(aggregates, walk(FedAvgM(0.3, 0.8), aggregates), strict=True):
        parameter.grad = -aggregate
        peer.step()
        torch.testing.assert_close(model, parameter.detach())


def test_adam_of_the_paper_has_no_bias_correction():
    delta = torch.tensor([[0.2, -0.1]], dtype=torch.float64)
    (model,) = walk(FedAdam(1.0, tau=1e-3, bias_correction=False), delta)
    torch.testing.assert_close(model, 0.1 * delta[0] / (0.1 * delta[0].abs() + 1e-3))


def test_momentum_without_memory_and_a_rate_of_one_is_federated_averaging_to_the_bit():
    runs = [federate(toy_clients(), linear(), SETTINGS, server_optimizer=each) for each in (None, FedAvgM(1.0, 0.0))]
    assert torch.equal(runs[0].weights, runs[1].weights)


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_each_stands_behind_any_rule_and_objective_and_repeats_to_the_bit(name):
    optimizer = SERVER_OPTIMIZERS[name]()
    for options in ({"aggregator": Median(), "expect_malicious": 1}, {"objective": Term()}, {"objective": QFair()}):
        one, two = (federate(toy_clients(), linear(), SETTINGS, server_optimizer=optimizer, **options) for _ in "ab")
        plain = federate(toy_clients(), linear(), SETTINGS, **options)
        assert torch.equal(one.weights, two.weights)
        assert not torch.allclose(one.weights, plain.weights)


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_running_statistics_take_the_aggregate_as_it_is(name):
    aggregate = torch.tensor([0.5, -0.5, 0.25, 3.0])
    optimizer, parameters = SERVER_OPTIMIZERS[name](), torch.tensor([True, True, False, False])
    step, moments = optimizer.step(aggregate, optimizer.begin(2), parameters)
    assert torch.equal(step[2:], aggregate[2:])
    assert all(len(moments[vector]) == 2 for vector in optimizer.remembers)
    found = federate(
        toy_clients(shape=(1, 8, 8)), convolutional(norm=True, tracked=True), SETTINGS, server_optimizer=optimizer
    )
    assert found.weights.isfinite().all()


def test_afl_whose_output_follows_its_own_steps_is_refused():
    with pytest.raises(ConfigError, match="afl averages the models of all rounds"):
        federate(toy_clients(), linear(), SETTINGS, objective=Afl(), server_optimizer=FedAvgM())


@pytest.mark.parametrize("kind", [FedAvgM, FedAdagrad, FedAdam, FedYogi])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_options_that_can_not_work_are_refused(kind, value):
    for option in fields(kind):
        if option.name != "bias_correction":
            with pytest.raises(ConfigError, match=f"{kind.name}'s {option.name} is"):
                kind(**{option.name: value})
