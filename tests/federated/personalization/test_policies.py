"""Policies of `fit` inside clients: each client trains on its own examples, from the shared model."""

from dataclasses import replace

import pytest
import torch

from holdfast.coresets import Crest
from holdfast.data import load_federation
from holdfast.errors import ConfigError, DataError
from holdfast.federated import FineTuning, Rounds, UpWeighted, WithPolicy, federate, personalize
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.network import Network
from holdfast.federated.personalization.policies import client_splits
from holdfast.methods import METHODS
from holdfast.models import build
from holdfast.poisoning import Epic
from holdfast.spurious import DfrVal, GroupBalanced, Pde, Spare
from tests.federated.toy import linear, toy_clients

SETTINGS = Rounds(batch_size=8, learning_rate=0.3, executor="serial")


def test_a_policy_trains_every_client_and_two_workers_give_the_same_bits():
    methods = [WithPolicy(epochs=8), FineTuning(epochs=8)]
    one = personalize(toy_clients(), linear(), SETTINGS, methods)
    two = personalize(
        toy_clients(), linear(), Rounds(batch_size=8, learning_rate=0.3, executor="pool", workers=2), methods
    )
    assert one.reports["uniform"].mean > one.reports["global"].mean + 0.1
    assert one.reports["uniform"].mean == pytest.approx(one.reports["finetuning"].mean, abs=0.1)
    everybody = torch.arange(8)
    rows = [found.runtime.personal("uniform", everybody, found.weights) for found in (one, two)]
    assert torch.equal(*rows)


def test_spare_runs_inside_clients_and_counterexamples_are_groups():
    clients = load_federation("painted-digits", clients=3, counterexamples=0.1)
    model = build("cnn-28-small", clients.input_shape, clients.classes)
    settings = Rounds(batch_size=16, learning_rate=1e-3, optimizer="adam", executor="serial")
    methods = [
        WithPolicy(policy=Spare(infer_epoch=1), epochs=2, called="spare"),
        WithPolicy(policy=GroupBalanced(), epochs=2, called="balanced"),
    ]
    found = personalize(clients, model, settings, methods)
    assert found.reports["spare"].mean > found.reports["global"].mean
    splits = client_splits(clients, 1)
    assert splits.train.attributes is not None and splits.train.attributes.sum() > 0
    assert len(splits.train) == int(clients.train.counts[1])


def test_crest_chooses_among_a_clients_own_examples():
    method = WithPolicy(policy=Crest(batch_size=4, subset=8), epochs=8, called="crest")
    found = personalize(toy_clients(), linear(), SETTINGS, [method])
    assert found.reports["crest"].mean > found.reports["global"].mean + 0.1


def test_epic_drops_what_stands_alone_on_a_client():
    method = WithPolicy(policy=Epic(fraction=0.2, start=2, every=1), epochs=8, called="epic")
    plain = WithPolicy(epochs=8)
    found = personalize(toy_clients(), linear(), SETTINGS, [method, plain])
    assert found.reports["epic"].mean > found.reports["global"].mean + 0.1
    everybody = torch.arange(8)
    rows = [found.runtime.personal(name, everybody, found.weights) for name in ("epic", "uniform")]
    assert not torch.equal(*rows)


def test_margins_are_refused():
    clients = toy_clients()
    runtime = ClientRuntime(clients, Network(torch.nn.Linear(6, 1), "margin"), SETTINGS, [WithPolicy(epochs=1)])
    with pytest.raises(ConfigError, match="margins"):
        runtime.personalize(WithPolicy(epochs=1), torch.tensor([0]), runtime.network.initial)


@pytest.mark.parametrize(
    ("method", "error", "sentence"),
    [
        (WithPolicy(policy=GroupBalanced()), DataError, "group-balanced inside clients needs a group per training"),
        (WithPolicy(policy=DfrVal()), DataError, "dfr-val inside clients needs a group per validation example"),
        (UpWeighted(), DataError, "uw draws counterexamples more often"),
        (WithPolicy(policy=Pde(first_expansion=9), epochs=2), ConfigError, "pde first grows its set after epoch 9"),
    ],
)
def test_what_needs_no_training_to_be_seen_is_refused_before_any(method, error, sentence, monkeypatch):
    for function in ("train", "personalize"):
        monkeypatch.setattr(ClientRuntime, function, lambda *_: pytest.fail("a client trained"))
    with pytest.raises(error, match=sentence):
        personalize(toy_clients(), linear(), SETTINGS, [method])
    with pytest.raises(error, match=sentence):
        federate(toy_clients(), linear(), replace(SETTINGS, cohort=4), personalize=[method])


def test_every_policy_that_needs_groups_says_so():
    needing = {name for name, policy in METHODS.items() if policy.needs_groups_of is not None}
    assert needing == {
        *("group-balanced", "group-weighted", "group-subsampled", "group-dro", "pde", "ssa", "dfr-train", "dfr-val")
    }
