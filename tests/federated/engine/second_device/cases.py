"""Tests on the second device; `tests/federated/engine/test_devices.py` runs them in a process of their own.

Once torch knows a second device, its first backward pass starts a thread for it, and forks of the process can't take
gradients any more: other tests would suffer.
"""

import pytest
import torch
from torch import nn

from holdfast import training
from holdfast.errors import ConfigError
from holdfast.federated import (
    AGGREGATORS,
    OBJECTIVES,
    PERSONALIZATION,
    Ditto,
    FineTuning,
    Gaussian,
    Local,
    Rounds,
    Threat,
    federate,
)
from holdfast.federated.result import FederationResult
from holdfast.methods import build_method
from holdfast.training import Training
from holdfast.training.run import Run
from tests.federated.engine.kinds import KINDS, made
from tests.federated.engine.second_device import NAME, available
from tests.federated.engine.test_any_model import clients_for
from tests.federated.test_tasks import linear_problem
from tests.federated.toy import convolutional, linear, toy_clients
from tests.training.test_speed_options import new_model, parts

assert available(), "build it first"

SETTINGS = {"rounds": 3, "cohort": 5, "batch_size": 4, "local_steps": 2, "learning_rate": 0.1, "chunk": 3}


def both(clients, model, executor="batched", **methods) -> list[FederationResult]:
    settings = [Rounds(**SETTINGS, executor=executor, device=device) for device in ("cpu", NAME)]
    return [federate(clients, model, each, **methods) for each in settings]


def assert_same(here: FederationResult, there: FederationResult) -> None:
    assert there.weights.device.type == NAME
    torch.testing.assert_close(there.weights.cpu(), here.weights, rtol=0, atol=1e-9)
    for label, report in here.reports.items():
        scores = there.reports[label].scores
        torch.testing.assert_close(scores.loss, report.scores.loss, rtol=0, atol=1e-9)
        assert scores.loss.device.type == "cpu"
        if label != "global":
            everybody = torch.arange(len(report.benign))
            models = [each.runtime.personal(label, everybody, each.weights).cpu() for each in (here, there)]
            torch.testing.assert_close(*models, rtol=0, atol=1e-9)


def test_tensors_of_two_devices_do_not_mix():
    """The device is of use only because of this."""
    other = torch.ones(3, device=NAME)
    for mix in (
        lambda: other + torch.ones(3),
        lambda: torch.cat([other, torch.ones(3)]),
        lambda: torch.ones(3) @ other,
    ):
        with pytest.raises(RuntimeError, match="device"):
            mix()
    with pytest.raises(RuntimeError):
        nn.Linear(3, 3)(other)


@pytest.mark.parametrize("executor", ["serial", "batched", "auto"])
def test_a_federation_on_another_device_is_that_of_the_cpu(executor):
    threat = Threat(Gaussian(sigma=0.1), 0.25)
    methods = {"personalize": [Local(), Ditto("auto"), FineTuning(epochs=1)], "threat": threat}
    here, elsewhere = both(toy_clients(dtype=torch.float64), linear().double(), executor, **methods)
    assert_same(here, elsewhere)
    assert next(elsewhere.model().parameters()).device.type == NAME


#: Torch wants kernels of each device's own for these, and the device for tests has none.
WITHOUT_KERNELS = {kind for kind in KINDS if "gru" in kind or "lstm" in kind} | {
    "sequence first",
    "cells",
    "packed sequences",
}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - WITHOUT_KERNELS))
def test_every_kind_of_model_runs_on_another_device(kind):
    assert_same(*both(clients_for(kind), made(kind)))


@pytest.mark.parametrize("name", sorted(AGGREGATORS))
def test_every_rule_runs_on_another_device(name):
    assert_same(
        *both(toy_clients(dtype=torch.float64), linear().double(), aggregator=AGGREGATORS[name](), expect_malicious=0)
    )


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_every_objective_runs_on_another_device(name):
    assert_same(*both(toy_clients(dtype=torch.float64), linear().double(), objective=OBJECTIVES[name]()))


@pytest.mark.parametrize("name", sorted(set(PERSONALIZATION) - {"uw"}))
def test_every_personalization_runs_on_another_device(name):
    clients, model = toy_clients(dtype=torch.float64), linear().double()
    if name.startswith("fed"):  # which keep a part of a model
        model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    method = PERSONALIZATION[name]()
    if hasattr(method, "pixels"):
        method = type(method)(pixels=False)
    assert_same(*both(clients, model, personalize=[method]))


def test_statistics_and_numbers_and_penalties_have_their_device():
    images = toy_clients(shape=(1, 8, 8), dtype=torch.float64)
    assert_same(*both(images, convolutional(norm=True, tracked=True).double()))
    assert_same(*both(linear_problem(), nn.Linear(4, 1).double()))
    penalised = nn.Linear(6, 3).double()
    penalised.weight_penalty = 0.01
    assert_same(*both(toy_clients(dtype=torch.float64), penalised))


def test_a_run_on_another_device_continues(tmp_path):
    clients, settings = toy_clients(dtype=torch.float64), {**SETTINGS, "executor": "serial", "device": NAME}
    whole = federate(clients, linear().double(), Rounds(**settings), personalize=[Ditto(0.5)])
    run = Run.create(tmp_path / "run", {})
    federate(clients, linear().double(), Rounds(**{**settings, "rounds": 1}), personalize=[Ditto(0.5)], run=run)
    again = federate(clients, linear().double(), Rounds(**settings), personalize=[Ditto(0.5)], run=Run.open(run.path))
    assert torch.equal(again.weights.cpu(), whole.weights.cpu())
    assert again.reports["ditto-0.5"].summary() == whole.reports["ditto-0.5"].summary()


def test_stores_stay_in_the_hosts_memory():
    outcome = both(toy_clients(), linear(), personalize=[Local()])[1]
    store = outcome.runtime.stores["local"]
    assert store.initial.device.type == "cpu"
    assert store.read(torch.arange(2)).device.type == NAME


OPTIONS = {
    "plain": {},
    "accumulated": {"accumulate": 2},
    "channels last": {"channels_last": True},
    "workers": {"workers": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("method", ["group-dro", "jtt", "crest"])
def test_a_training_on_another_device_is_that_of_the_cpu(method, name):
    """Batches, their parts, sweeps and losses are where the model is."""
    policy = {"jtt": {"infer_epoch": 1, "lambda_up": 3}, "crest": {"subset": 20}}
    weights = []
    for device in ("cpu", NAME):
        splits = parts(images=False, dtype=torch.float64, lazy=name == "workers")
        settings = Training(epochs=2, batch_size=8, learning_rate=0.05, device=device, **OPTIONS[name])
        model = new_model().double()
        training.fit(model, splits, build_method(method, {method: policy.get(method, {})}), settings)
        assert next(model.parameters()).device.type == device
        weights.append(torch.cat([p.detach().cpu().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-9)


def test_what_the_device_cannot_do_is_a_sentence():
    for option, message in (({"precision": "bf16"}, "no autocast to bf16"), ({"pin_memory": True}, "page-locked")):
        with pytest.raises(ConfigError, match=message):
            training.fit(new_model(), parts(images=False), None, Training(epochs=1, device=NAME, **option))
