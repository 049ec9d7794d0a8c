"""Every method that a mod can run gives what the simulator gives, on the same mini-batches."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError
from holdfast.federated import Rounds, federate
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.personalization import (
    Apfl,
    Ditto,
    Ewc,
    FedBn,
    FedPer,
    FedRep,
    FineTuning,
    L2Sgd,
    Local,
    Mapper,
    PerFedAvg,
    PFedMe,
    Skl,
    Transferability,
    WithPolicy,
)
from holdfast.federated.personalization.table import PERSONALIZATION
from holdfast.integrations.flower.mod import PersonalMod
from holdfast.integrations.flower.personal.memory import load_personal
from holdfast.integrations.flower.strategies import RobustStrategy
from tests.integrations.flower.local_grid import LocalGrid

CLIENTS, EXAMPLES, BATCH, ROUNDS, RATE, SEED, TUNING = 3, 24, 8, 3, 0.1, 5, 2
STEPS = EXAMPLES // BATCH
SETTINGS = Rounds(
    rounds=ROUNDS,
    cohort=CLIENTS,
    batch_size=BATCH,
    local_epochs=1,
    learning_rate=RATE,
    sampling="uniform",
    executor="serial",
    evaluate_every=0,
    seed=SEED,
)


def part(examples, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(CLIENTS * examples, 6, generator=generator)
    labels = (inputs[:, :3] + 0.5 * torch.randn(CLIENTS * examples, 3, generator=generator)).argmax(1)
    return ClientPart.of_counts(inputs, labels, torch.full((CLIENTS,), examples))


DATA = Clients(part(EXAMPLES, 0), part(10, 1), part(6, 2), classes=3)


def plain():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def normed():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


class Tied(nn.Module):
    """Two layers with the same weights, and one that is frozen."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight
        self.head.weight.requires_grad_(False)

    def forward(self, inputs):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(inputs)))))


def made(network):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return network()


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def batches(message, context):
    """The simulator's mini-batches of this round."""
    client = int(context.node_config["partition-id"])
    if message.metadata.message_type == "evaluate":
        return Walk(drawn(client, 0, TUNING * STEPS), STEPS)
    return drawn(client, (int(message.content["config"]["server-round"]) - 1) * STEPS, STEPS)


class Walk(list):
    """Mini-batches of several walks through the data, of which only those of the first are counted."""

    def __init__(self, items, counted):
        super().__init__(items)
        self.counted = counted

    def __len__(self):
        return self.counted


def drawn(client, first, count):
    inputs, labels = DATA.train.of(client)
    rows = BatchStream(SEED, BATCH).rows(client, EXAMPLES, first, count)
    return [(inputs[row], labels[row]) for row in rows]


def validation(message, context):
    inputs, labels = DATA.validation.of(int(context.node_config["partition-id"]))
    return zip(inputs.split(4), labels.split(4), strict=True)


def app(network, mod):
    client = ClientApp(mods=[mod])

    @client.train()
    def train(message, context):
        model = made(network)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for batch in batches(message, context):
            optimizer.zero_grad()
            loss(model.train(), batch).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": EXAMPLES, "partition-id": int(context.node_config["partition-id"])})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    @client.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 4})}), reply_to=message)

    return client


def by_flower(network, method, folder, rounds=ROUNDS, **options):
    """The shared model, and each client's personal one, after some rounds of Flower's messages."""
    given = {"learning_rate": RATE, "validation": validation, "batches": batches} | options
    mod = PersonalMod(method, lambda: made(network), loss, folder=folder, **given)
    grid = LocalGrid([app(network, mod)] * CLIENTS)
    result = RobustStrategy("mean").start(grid, ArrayRecord(made(network).state_dict()), num_rounds=rounds)
    return result.arrays.to_torch_state_dict(), [load_personal(folder, client).model for client in range(CLIENTS)]


def by_simulator(network, method):
    outcome = federate(DATA, made(network), SETTINGS, personalize=[method])
    label = list(outcome.runtime.stores)[-1]
    rows = outcome.runtime.personal(label, torch.arange(CLIENTS), outcome.weights)
    load = outcome.runtime.network.load
    return load(outcome.weights).state_dict(), [load(row).state_dict() for row in rows]


def assert_equal(found, expected):
    for name, value in expected.items():
        if value.is_floating_point():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6, msg=lambda text, at=name: f"{at}: {text}")


METHODS = {
    "ditto": Ditto(0.7),
    "ditto, the papers start": Ditto(0.7, start="initial"),
    "ditto, local anchor": Ditto(0.7, anchor="local"),
    "ditto-auto": Ditto("auto"),
    "ditto-parallel": Ditto("parallel"),
    "local": Local(),
    "apfl": Apfl(0.3),
    "apfl, adaptive": Apfl(0.6, adaptive=True),
    "l2sgd": L2Sgd(0.5),
    "pfedme": PFedMe(lambda_=3.0),
    "finetuning": FineTuning(epochs=TUNING),
    "finetuning with a pull": FineTuning(epochs=TUNING, lambda_=0.5),
    "ewc": Ewc(epochs=TUNING),
    "skl": Skl(epochs=TUNING),
    "ditto, the head alone": Ditto(0.7, layers=("head",)),
    "ditto-auto, the head alone": Ditto("auto", layers=("head",)),
    "ditto, by predictions": Ditto(0.7, distance="skl"),
    "fedper": FedPer(),
    "fedper, first layer": FedPer(("0.bias",)),
    "fedbn": FedBn(),
}
#: Networks that a method is not made for.
WITHOUT = {"fedbn": {plain, Tied}, "fedper, first layer": {normed, Tied}}


PAIRS = {
    f"{name}, {network.__name__}": (method, network)
    for name, method in METHODS.items()
    for network in (plain, normed, Tied)
    if (method.keeps_statistics or network is not normed) and network not in WITHOUT.get(name, ())
}


@pytest.mark.parametrize(("method", "network"), PAIRS.values(), ids=PAIRS)
def test_a_mod_gives_the_simulators_shared_and_personal_models(tmp_path, method, network):
    shared, personal = by_flower(network, method, tmp_path)
    expected, of_clients = by_simulator(network, method)
    assert_equal(shared, expected)
    for found, row in zip(personal, of_clients, strict=True):
        assert_equal(found, row)
    start = made(network).state_dict()
    assert not all(torch.allclose(personal[0][name], value, atol=1e-4) for name, value in start.items())
    assert not all(torch.allclose(personal[0][name], value, atol=1e-4) for name, value in personal[1].items())


@pytest.mark.parametrize(
    ("method", "per_round"),
    [(PerFedAvg(epochs=TUNING), 3 * STEPS), (Mapper(epochs=TUNING), STEPS + 2), (FedRep(head_steps=2), STEPS + 2)],
)
@pytest.mark.parametrize("network", [plain, Tied])
def test_a_method_that_draws_more_than_its_steps_does_so_in_a_mod(tmp_path, method, per_round, network):
    """The mini-batches of a round are given so that walking through them again gives the simulator's."""

    def more(message, context):
        if message.metadata.message_type == "evaluate":
            return batches(message, context)
        number = int(message.content["config"]["server-round"]) - 1
        return Walk(drawn(int(context.node_config["partition-id"]), number * per_round, per_round), STEPS)

    shared, personal = by_flower(network, method, tmp_path, batches=more)
    expected, of_clients = by_simulator(network, method)
    assert_equal(shared, expected)
    for found, row in zip(personal, of_clients, strict=True):
        assert_equal(found, row)


@pytest.mark.parametrize("network", [plain, normed])
def test_fisher_information_is_taken_on_the_first_four_batches_of_a_round(tmp_path, network):
    """A mod begins again at the round's first where there are fewer; here there are four for three steps."""

    def four(message, context):
        number = int(message.content["config"]["server-round"]) - 1
        return Walk(drawn(int(context.node_config["partition-id"]), number * STEPS, 4), STEPS)

    method = Ditto(0.7, distance="ewc")
    _, personal = by_flower(network, method, tmp_path, batches=four)
    _, of_clients = by_simulator(network, method)
    for found, row in zip(personal, of_clients, strict=True):
        assert_equal(found, row)


def test_every_method_runs_in_a_mod_or_says_why_not(tmp_path):
    refused = set()
    for name, kind in PERSONALIZATION.items():
        method = kind()
        try:
            network = normed if name == "fedbn" else plain
            by_flower(network, method, tmp_path / name, rounds=1, learning_rate=0.01)
        except ConfigError as error:
            refused.add(name)
            assert "looks at single examples" in str(error)
    assert refused == {"transferability", "flipped-label", "ft", "near", "uw", "jtt"}


def test_a_method_starts_from_the_round_that_it_names(tmp_path):
    """The simulator's fine-tuning after two rounds, though a third follows."""
    _, personal = by_flower(plain, FineTuning(epochs=TUNING, after=2), tmp_path)
    _, expected = by_simulator(plain, FineTuning(epochs=TUNING, after=2))
    for found, row in zip(personal, expected, strict=True):
        assert_equal(found, row)


@pytest.mark.parametrize("optimizer", [partial(torch.optim.Adam, lr=0.01), partial(torch.optim.AdamW, lr=0.01)])
def test_with_any_optimizer_the_part_of_fedrep_that_stands_still_does(tmp_path, optimizer):
    """The head's only step comes first, so the head after it differs from none that weight decay has moved."""
    method = FedRep(head_steps=1)
    _, personal = by_flower(
        plain, method, tmp_path, rounds=1, learning_rate=None, optimizer=lambda model: optimizer(model.parameters())
    )
    start = made(plain).state_dict()
    moved = (personal[0]["2.weight"] - start["2.weight"]).abs()
    assert float(moved.max()) < 0.011


@pytest.mark.parametrize("method", [Transferability(), WithPolicy()])
def test_a_method_that_must_see_examples_is_refused_with_what_to_do(tmp_path, method):
    with pytest.raises(ConfigError, match="holdfast federate --engine flower"):
        PersonalMod(method, plain, loss, batches, folder=tmp_path, learning_rate=0.1)


def test_a_lambda_to_be_chosen_needs_something_to_choose_by(tmp_path):
    with pytest.raises(ConfigError, match="give the mod `validation`"):
        PersonalMod(Ditto("auto"), plain, loss, batches, folder=tmp_path, learning_rate=0.1)


@pytest.mark.parametrize("method", [Apfl(0.5), Mapper()])
def test_a_method_that_mixes_models_is_refused_where_running_statistics_cannot_be_mixed(tmp_path, method):
    mod = PersonalMod(method, lambda: made(normed), loss, batches, folder=tmp_path, learning_rate=RATE)
    content = {"arrays": ArrayRecord(made(normed).state_dict()), "config": ConfigRecord({"server-round": 1})}
    (reply,) = LocalGrid([app(normed, mod)]).send_and_receive([Message(RecordDict(content), 1000, "train")])
    assert "running statistics of batch normalisation can't be mixed" in reply.error.reason


def test_a_joint_method_repeats_its_answer_when_a_message_comes_twice(tmp_path):
    def dropping(model, batch):
        return loss(model, (F.dropout(batch[0], 0.5), batch[1]))

    mod = PersonalMod(L2Sgd(0.5), lambda: made(plain), dropping, batches, folder=tmp_path, learning_rate=RATE)
    grid = LocalGrid([app(plain, mod)])
    answers = []
    for number in (1, 2, 2):
        content = {"arrays": ArrayRecord(made(plain).state_dict()), "config": ConfigRecord({"server-round": number})}
        (reply,) = grid.send_and_receive([Message(RecordDict(content), 1000, "train")])
        answers.append(reply.content["arrays"].to_torch_state_dict())
    assert all(torch.equal(answers[2][name], value) for name, value in answers[1].items())  # dropped alike
    assert not all(torch.equal(answers[1][name], value) for name, value in answers[0].items())
    assert load_personal(tmp_path, 0).rounds == 2
