"""Every method, on every executor, and what the command line needs to know of it."""

from dataclasses import fields, replace

import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.network import Network
from holdfast.federated.metrics.scoring import score_models
from holdfast.federated.personalization import (
    PERSONALIZATION,
    Apfl,
    Ditto,
    Ewc,
    FedBn,
    FedRep,
    FineTuning,
    L2Sgd,
    Mapper,
)
from holdfast.federated.personalization.early_stopping import EarlyStoppedFineTuning
from tests.federated.personalization.toy import SETTINGS, clients, part, rows, run

EXTRA = {
    "ditto-1": Ditto(1.0),
    "ditto-initial": Ditto(start="initial"),
    "ditto-steps": Ditto(1.0, steps=5),
    "ditto-auto-steps": Ditto(steps=1),
    "ditto-parallel": Ditto("parallel"),
    "ditto-parallel-steps": Ditto("parallel", steps=3),
    "apfl-adaptive": Apfl(adaptive=True),
    "ditto-layers": Ditto(layers=("head",)),
    "ditto-parallel-layers": Ditto("parallel", layers=("head",), steps=3),
    "ditto-ewc": Ditto(1.0, distance="ewc"),
    "ditto-skl": Ditto(distance="skl"),
    "fedrep-head": FedRep(head_steps=4),
    "ewc-examples": Ewc(fisher="examples"),
    "finetuning-after": FineTuning(after=2),
}
#: Inputs are no images here, and nobody marks counterexamples: uw is tested with data that does.
FIXED = {"transferability": {"adversarial": 1.0, "weights": 0.1, "search": False}, "near": {"lambda_": 0.1}}
METHODS = EXTRA | {
    name: method(**({"pixels": False} if issubclass(method, EarlyStoppedFineTuning) else {}), **FIXED.get(name, {}))
    for name, method in PERSONALIZATION.items()
    if name != "uw"
}


def net_for(method):
    """The toy's own, or one with batch normalisation for the method that is about it."""
    if not isinstance(method, FedBn):
        return None
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


def short(method):
    """With two epochs of tuning instead of fifty."""
    return replace(method, epochs=2) if "epochs" in {field.name for field in fields(method)} else method


@pytest.mark.parametrize("local_epochs", [None, 1], ids=["steps", "epochs"])
@pytest.mark.parametrize("name", METHODS)
def test_executors_agree(name, local_epochs):
    """Clients have from 3 to 40 examples, batches of 8, and with epochs different numbers of steps."""
    method, outcomes = short(METHODS[name]), {}
    for executor, chunk in [("serial", None), ("batched", 3), ("pool", 2)]:
        settings = replace(
            SETTINGS, rounds=3, cohort=6, executor=executor, chunk=chunk, workers=2, local_epochs=local_epochs
        )
        outcomes[executor] = run(method, settings=settings, net=net_for(method))
    reference = outcomes.pop("serial")
    everybody = torch.arange(8)
    for outcome in outcomes.values():
        torch.testing.assert_close(outcome.weights, reference.weights, rtol=1e-4, atol=1e-5)
        for label in reference.runtime.stores:
            kept = [rows(each, label) for each in (outcome, reference)]
            torch.testing.assert_close(*kept, rtol=1e-4, atol=1e-5, equal_nan=True)
            ours, theirs = (each.runtime.personal(label, everybody, each.weights) for each in (outcome, reference))
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
            assert ours.shape == (8, reference.network.size)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_moves_personal_models_away_from_the_shared_one(name):
    outcome = run(short(METHODS[name]), net=net_for(METHODS[name]))
    for label in outcome.runtime.stores:
        personal = outcome.runtime.personal(label, torch.arange(8), outcome.weights)
        assert ((personal - outcome.weights).norm(dim=1) > 1e-4)[outcome.joined > 0].all()


def test_names_are_what_users_type():
    assert {name: method.name for name, method in PERSONALIZATION.items()} == {name: name for name in PERSONALIZATION}
    assert PERSONALIZATION.find("l2sgd") is L2Sgd
    with pytest.raises(ConfigError, match="did you mean 'ditto'"):
        PERSONALIZATION.find("dito")


def test_two_methods_that_decide_what_is_sent_are_refused():
    with pytest.raises(ConfigError, match="both decide what clients send"):
        run(L2Sgd(), Mapper())


def test_models_with_batch_statistics_are_compared_on_each_client_s_own_batch():
    """Padding would change the statistics, so clients with different numbers of examples are not stacked."""
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3))
    data = replace(clients(), validation=part((4, 6, 5, 5, 8, 9, 7, 4), 1))
    runtime = ClientRuntime(data, Network(net), SETTINGS)
    ids = torch.tensor([0, 1, 5])
    models = runtime.network.initial + 0.1 * torch.randn(
        2, 3, runtime.network.size, generator=torch.Generator().manual_seed(0)
    )
    expected = torch.stack(
        [
            torch.cat(
                [
                    score_models(runtime.network, row[None], data.validation, k[None]).loss
                    for row, k in zip(each, ids, strict=True)
                ]
            )
            for each in models
        ]
    )
    torch.testing.assert_close(runtime.training.mean_losses("validation", ids, models), expected, rtol=1e-5, atol=1e-6)
