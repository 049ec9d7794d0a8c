"""FedPer, FedRep and FedBN against a plain loop over modules and state dicts, in double precision."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.federated.attacks import LabelPoisoning, ModelReplacement
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.engine.network import Network
from holdfast.federated.personalization import FedBn, FedPer, FedRep
from tests.federated.personalization.partial.plain import in_double, plain_loop
from tests.federated.personalization.toy import SETTINGS, Recording, model, rows, run

EVERYBODY = torch.arange(8)


def normed():
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def is_head(net):
    last = f"{len(net) - 1}."
    return lambda name: name.startswith(last)


CASES = {
    "fedper": (FedPer(), model, is_head, None),
    "fedper, normalised": (FedPer(), normed, is_head, None),
    "fedper, two layers": (FedPer(("0.bias", "2")), model, lambda net: lambda name: name != "0.weight", None),
    "fedrep": (FedRep(), model, is_head, 2),
    "fedrep, many steps of the head": (FedRep(head_steps=5), model, is_head, 5),
    "fedrep, normalised": (FedRep(head_steps=1), normed, is_head, 1),
    "fedbn": (FedBn(), normed, lambda net: lambda name: name.startswith("1."), None),
}  # fmt: skip


@pytest.mark.parametrize("executor", ["serial", "batched"])
@pytest.mark.parametrize("case", CASES)
def test_shared_and_personal_models_are_those_of_a_plain_loop(case, executor):
    method, make, owns, head_steps = CASES[case]
    net, data, settings = make().double(), in_double(), replace(SETTINGS, executor=executor, chunk=3)
    outcome = run(method, settings=settings, data=data, net=net)
    shared, own = plain_loop(net, data, settings, owns(net), head_steps)
    personal = outcome.runtime.personal(method.label, EVERYBODY, outcome.weights)
    assert outcome.runtime.stores[method.label].written.nonzero().flatten().tolist() == sorted(own)
    for client, state in own.items():
        found = outcome.network.load(personal[client]).state_dict()
        for name, value in {**shared, **state}.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11)
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(own[1].values(), own[5].values(), strict=True))


@pytest.mark.parametrize(("method", "net"), [(FedPer(), model), (FedRep(), model), (FedBn(), normed)])
def test_what_stays_with_clients_is_never_sent(method, net):
    recording = Recording()
    threat = Threat(ModelReplacement(), 0.25)
    outcome = run(method, net=net(), aggregator=recording, threat=threat, expect_malicious=0)
    columns = method.columns(outcome.network)
    others = torch.ones(outcome.network.size, dtype=torch.bool)
    others[columns] = False
    for step in recording.steps:
        assert (step[columns] == 0).all()
        assert (step[others] != 0).any()
    assert rows(outcome, method.label).shape == (8, len(columns))


def test_a_client_that_never_took_part_has_the_shared_model():
    outcome = run(FedPer(), settings=replace(SETTINGS, rounds=1, cohort=2))
    personal = outcome.runtime.personal("fedper", EVERYBODY, outcome.weights)
    assert torch.equal(personal[outcome.joined == 0], outcome.weights.repeat(6, 1))


def test_a_shared_part_is_not_called_a_model_that_diverged():
    """What is shared has a head that nobody trains: its loss says nothing."""
    outcome = run(FedPer(), settings=replace(SETTINGS, learning_rate=20.0), threat=Threat(LabelPoisoning(), 0.5))
    assert outcome.divergence is None


# -------------------------------------------------------------------------------------------------- which part


class Tied(nn.Module):
    """Two layers with the same weights, a frozen one and a head of another name."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.frozen = (nn.Linear(4, 4) for _ in range(3))
        self.out = nn.Linear(4, 3)
        self.second.weight = self.first.weight
        self.frozen.requires_grad_(False)

    def forward(self, inputs):
        return self.out(self.frozen(self.second(self.first(inputs))))


def names_of(method, net):
    network = Network(net)
    columns = set(method.columns(network).tolist())
    return {name for name, place in network.slices.items() if set(range(place.start, place.stop)) <= columns}


def test_layers_are_modules_or_parameters_with_their_statistics_and_tied_weights():
    assert names_of(FedPer(), Tied()) == {"out.weight", "out.bias"}
    assert names_of(FedPer(("second",)), Tied()) == {"first.weight", "second.bias"}
    assert names_of(FedPer(("first.bias",)), Tied()) == {"first.bias"}
    statistics = {"1.weight", "1.bias", "1.running_mean", "1.running_var"}
    assert names_of(FedPer(("1",)), normed()) == names_of(FedBn(), normed()) == statistics
    bare = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 3))
    assert names_of(FedBn(), bare) == {"1.running_mean", "1.running_var"}
    untracked = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3))
    assert names_of(FedBn(), untracked) == {"1.weight", "1.bias"}


@pytest.mark.parametrize(
    ("method", "net", "sentence"),
    [
        (FedPer(("secnd",)), Tied(), r"Tied has no layer 'secnd' for fedper; did you mean 'second'"),
        (FedPer(("frozen",)), Tied(), r"nothing in the layer 'frozen' of Tied trains"),
        (FedRep(("frozen.weight",)), Tied(), r"nothing in the layer 'frozen.weight' of Tied trains"),
        (FedPer(("0", "2")), model(), r"the layers 0, 2 are all that Sequential trains, so fedper would share nothing"),
        (FedPer(), nn.Linear(4, 3), r"the layers head are all that Linear trains, .* use local"),
        (FedPer(()), model(), r"fedper has no layers that stay with clients; name some"),
        (FedPer(), nn.Sequential(nn.Linear(4, 3), nn.Conv1d(1, 1, 1)), r"can't be determined.*name the layers"),
        (FedBn(), model(), r"fedbn keeps batch normalisation with clients, and Sequential has none; use a model with"),
        (FedBn(), nn.Sequential(nn.BatchNorm1d(4)), r"trains nothing but batch normalisation"),
    ],
)
def test_a_part_that_is_not_there_is_refused_before_anything_is_trained(method, net, sentence):
    with pytest.raises(ConfigError, match=sentence):
        run(method, net=net)


def test_options_are_checked():
    with pytest.raises(ConfigError, match="head steps are 0"):
        FedRep(head_steps=0)
