"""Personal models with the optimizers, schedules and networks that people have in their own Flower projects."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR, OneCycleLR, ReduceLROnPlateau, StepLR

from holdfast.errors import CheckpointError, ConfigError
from holdfast.federated.personalization import Ditto, FineTuning, L2Sgd
from holdfast.integrations.flower.mod import PersonalMod
from holdfast.integrations.flower.personal.memory import load_personal
from tests.integrations.flower.local_grid import LocalGrid

ROUNDS, LAMBDA = 3, 0.4


def small():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def data(number):
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(6, 4, generator=generator)
    return {"img": inputs, "label": (inputs[:, 0] > 0).long()}


def batches(message, context):
    """As quickstart-pytorch has them: dictionaries, from a loader without a length."""
    number = int(message.content["config"]["server-round"])
    yield from (data(10 * number + place) for place in range(4))


def validation(message, context):
    return [data(99), data(98)]


def loss(model, batch):
    return F.cross_entropy(model(batch["img"]), batch["label"])


def new_app(mod):
    app = ClientApp(mods=[mod])

    @app.train()
    def train(message, context):
        return Message(
            RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 24})}),
            reply_to=message,
        )

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 24})}), reply_to=message)

    return app


def received(network, number):
    """What the server sends in a round: another model each time."""
    model = network()
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return model.state_dict()


def rounds(mod, network=small, numbers=range(1, ROUNDS + 1), kind="train"):
    grid = LocalGrid([new_app(mod)])
    for number in numbers:
        content = {
            "arrays": ArrayRecord(received(network, number)),
            "config": ConfigRecord({"server-round": number}),
        }
        (reply,) = grid.send_and_receive([Message(RecordDict(content), 1000, kind)])
        if reply.has_error():
            raise AssertionError(reply.error.reason)
    return reply


def mod(folder, method=None, network=small, **options):
    given = {"loss": loss, "batches": batches, "folder": folder} | options
    return PersonalMod(method or Ditto(LAMBDA), network, **given)


def ditto_with_torch(optimizer, scheduler=None, every="round", lambda_=LAMBDA):
    """Ditto's objective written as a loss, with torch's own backward pass, optimizer and schedule."""
    model = small()
    model.load_state_dict(received(small, 1))
    steps = optimizer(model)
    schedule = None if scheduler is None else scheduler(steps)
    for number in range(1, ROUNDS + 1):
        shared = received(small, number)
        for place in range(4):
            steps.zero_grad()
            pull = sum((value - shared[name]).square().sum() for name, value in model.named_parameters())
            (loss(model, data(10 * number + place)) + lambda_ / 2 * pull).backward()
            steps.step()
            if schedule is not None and every == "step":
                schedule.step()
        if schedule is not None and every == "round":
            schedule.step()
    return model.state_dict()


OPTIMIZERS = {
    "sgd with momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "adamw, no decay of biases": lambda model: torch.optim.AdamW(
        [
            {"params": [each for each in model.parameters() if each.ndim > 1], "weight_decay": 0.1},
            {"params": [each for each in model.parameters() if each.ndim == 1], "weight_decay": 0.0, "lr": 0.02},
        ],
        lr=0.01,
    ),
    "amsgrad": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True),
    "adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=0.05),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01, centered=True, momentum=0.5),
    "rprop": lambda model: torch.optim.Rprop(model.parameters(), lr=0.01),
    "radam": lambda model: torch.optim.RAdam(model.parameters(), lr=0.01),
    "nadam": lambda model: torch.optim.NAdam(model.parameters(), lr=0.01),
    "adamax": lambda model: torch.optim.Adamax(model.parameters(), lr=0.01),
    "adadelta": lambda model: torch.optim.Adadelta(model.parameters(), lr=1.0),
    "asgd": lambda model: torch.optim.ASGD(model.parameters(), lr=0.05),
    "adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.01),
    "only the last layer": lambda model: torch.optim.Adam(model[2].parameters(), lr=0.05),
}
SCHEDULES = {
    "steps of rounds": (lambda optimizer: StepLR(optimizer, 1, gamma=0.5), "round"),
    "milestones": (lambda optimizer: MultiStepLR(optimizer, [1, 2], gamma=0.3), "round"),
    "cosine by step": (lambda optimizer: CosineAnnealingLR(optimizer, 12), "step"),
    "one cycle by step": (lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=13), "step"),
}


def assert_same(found, expected, atol=1e-6):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=atol)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_ditto_takes_the_steps_of_any_optimizer_and_remembers_between_messages(tmp_path, optimizer):
    """Every message is answered by a new app, as Flower does: all that is remembered is on the disk."""
    for number in range(1, ROUNDS + 1):
        rounds(mod(tmp_path, optimizer=optimizer), numbers=[number])
    assert_same(load_personal(tmp_path, 0).model, ditto_with_torch(optimizer))


@pytest.mark.parametrize(("scheduler", "every"), SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_count_rounds_or_steps_across_messages(tmp_path, scheduler, every):
    adam = OPTIMIZERS["adam"]
    for number in range(1, ROUNDS + 1):
        given = mod(tmp_path, optimizer=adam, scheduler=scheduler, schedule_by=every)
        rounds(given, numbers=[number])
    assert_same(load_personal(tmp_path, 0).model, ditto_with_torch(adam, scheduler, every))


def test_a_chosen_lambda_keeps_the_optimizers_memory_of_the_chosen_step(tmp_path):
    """By hand: from one gradient and one state, a step of Adam per lambda; the best on validation data goes on."""
    candidates = (0.1, 1.0, 2.0)
    adam = OPTIMIZERS["adam"]
    rounds(mod(tmp_path, Ditto("auto", candidates=candidates), optimizer=adam, validation=validation))
    model = small()
    model.load_state_dict(received(small, 1))
    state = adam(model).state_dict()
    taken = []
    for number in range(1, ROUNDS + 1):
        shared = received(small, number)
        for place in range(4):
            tried = []
            for lambda_ in candidates:
                other = copy.deepcopy(model)
                optimizer = adam(other)
                optimizer.load_state_dict(copy.deepcopy(state))
                loss(other, data(10 * number + place)).backward()
                for name, value in other.named_parameters():
                    value.grad += lambda_ * (value.detach() - shared[name])
                optimizer.step()
                with torch.no_grad():
                    held_out = sum(float(loss(other, batch)) for batch in validation(None, None))
                tried.append((held_out, other, optimizer.state_dict()))
            best = min(range(3), key=lambda at: tried[at][0])
            taken.append(best)
            _, model, state = tried[best]
    assert len(set(taken)) > 1
    assert_same(load_personal(tmp_path, 0).model, model.state_dict())


def test_models_side_by_side_have_an_optimizer_each(tmp_path):
    adam = OPTIMIZERS["adam"]
    rounds(mod(tmp_path, Ditto("parallel", candidates=(0.1, 1.0)), optimizer=adam, validation=validation))
    row = load_personal(tmp_path, 0).rows["ditto-parallel"].view(2, -1)
    for place, lambda_ in enumerate((0.1, 1.0)):
        expected = torch.cat([value.flatten() for value in ditto_with_torch(adam, lambda_=lambda_).values()])
        torch.testing.assert_close(row[place], expected, rtol=0, atol=1e-6)


def test_other_methods_take_an_optimizer_too(tmp_path):
    adam = OPTIMIZERS["adam"]
    rounds(mod(tmp_path / "joint", L2Sgd(0.5), optimizer=adam))
    rounds(mod(tmp_path / "tuned", FineTuning(epochs=2), optimizer=adam), kind="evaluate")
    model = small()
    model.load_state_dict(received(small, ROUNDS))
    optimizer = adam(model)
    for place in [0, 1, 2, 3] * 2:
        optimizer.zero_grad()
        loss(model, data(10 * ROUNDS + place)).backward()
        optimizer.step()
    assert_same(load_personal(tmp_path / "tuned", 0).model, model.state_dict())
    assert load_personal(tmp_path / "joint", 0).rounds == ROUNDS


# -------------------------------------------------------------------------------------------------- what can't be


REFUSED = {
    "evaluates the loss several times": {"optimizer": lambda model: torch.optim.LBFGS(model.parameters())},
    "can't take a step": {"optimizer": lambda model: torch.optim.SparseAdam(list(model.parameters()))},
    "none of the model's parameters": {
        "optimizer": lambda model: torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1)
    },
    "the optimizer is a Linear": {"optimizer": lambda model: nn.Linear(1, 1)},
    "waits for a metric": {"optimizer": OPTIMIZERS["adam"], "scheduler": ReduceLROnPlateau},
    "models diverge": {"optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=9.0)},
    "one number": {"learning_rate": 0.1, "loss": lambda model, batch: model(batch["img"])},
    "no mini-batch": {"learning_rate": 0.1, "batches": lambda message, context: []},
}


@pytest.mark.parametrize(("said", "options"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_work_is_said_in_a_sentence(tmp_path, said, options):
    with pytest.raises(AssertionError, match=said) as caught:
        rounds(mod(tmp_path, **options))
    assert "Config" in str(caught.value) or "DataError" in str(caught.value)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_steps_without_a_size_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="give a learning_rate, or an optimizer"):
        mod(tmp_path)
    with pytest.raises(ConfigError, match="belongs to an optimizer"):
        mod(tmp_path, learning_rate=0.1, scheduler=SCHEDULES["milestones"][0])


def test_another_optimizer_does_not_continue_a_run(tmp_path):
    rounds(mod(tmp_path, optimizer=OPTIMIZERS["only the last layer"]), numbers=[1])
    before = load_personal(tmp_path, 0).model
    with pytest.raises(AssertionError, match="what is kept is of another optimizer than AdamW") as caught:
        rounds(mod(tmp_path, optimizer=OPTIMIZERS["adamw, no decay of biases"]), numbers=[2])
    assert CheckpointError.__name__ in str(caught.value)
    assert_same(load_personal(tmp_path, 0).model, before, atol=0)


# -------------------------------------------------------------------------------------------------- networks


class Mixed(nn.Module):
    """Half a model in double precision, dropout, a spectral norm with buffers of its own, and a counter of integers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
        self.norm, self.second = nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 2).double()
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs):
        if self.training:
            self.passes += 1
        return self.second(F.dropout(self.norm(self.first(inputs)), 0.2, self.training).double())


@pytest.mark.parametrize("options", [{"learning_rate": 0.05}, {"optimizer": OPTIMIZERS["adam"]}])
def test_mixed_dtypes_dropout_and_buffers_of_their_own_are_kept(tmp_path, options):
    rounds(mod(tmp_path, network=Mixed, **options), Mixed)
    model = Mixed()
    model.load_state_dict(load_personal(tmp_path, 0).model)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32, torch.float64}
    assert int(model.passes) == 4 * ROUNDS == int(model.norm.num_batches_tracked)
    assert not torch.equal(model.second.weight, Mixed().second.weight)


def test_arrays_without_names_are_in_the_networks_order(tmp_path):
    """As of projects that send lists of NumPy arrays."""
    grid = LocalGrid([new_app(mod(tmp_path, learning_rate=0.1))])
    arrays = ArrayRecord([value.numpy() for value in received(small, 1).values()])
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 1})})
    (reply,) = grid.send_and_receive([Message(content, 1000, "train")])
    assert not reply.has_error()
    rounds(mod(tmp_path / "named", learning_rate=0.1), numbers=[1])
    assert_same(load_personal(tmp_path, 0).model, load_personal(tmp_path / "named", 0).model, atol=0)


def test_several_clients_of_a_node_are_told_apart_by_the_message(tmp_path):
    def client(message, context):
        return message.content["config"]["ward"]

    app = new_app(mod(tmp_path, learning_rate=0.1, client=client))
    grid = LocalGrid([app])
    for ward, number in (("icu", 1), ("er", 1), ("icu", 2)):
        content = {
            "arrays": ArrayRecord(received(small, number)),
            "config": ConfigRecord({"server-round": number, "ward": ward}),
        }
        (reply,) = grid.send_and_receive([Message(RecordDict(content), 1000, "train")])
        assert not reply.has_error()
    assert (load_personal(tmp_path, "icu").rounds, load_personal(tmp_path, "er").rounds) == (2, 1)


def test_a_message_with_several_records_is_asked_which_is_the_model(tmp_path):
    def content():
        arrays = {"model": ArrayRecord(received(small, 1)), "control": ArrayRecord(received(small, 2))}
        return RecordDict({**arrays, "arrays": ArrayRecord(), "config": ConfigRecord({"server-round": 1})})

    (reply,) = LocalGrid([new_app(mod(tmp_path, learning_rate=0.1))]).send_and_receive(
        [Message(content(), 1000, "train")]
    )
    assert "name the one with the model" in reply.error.reason
    named = mod(tmp_path, learning_rate=0.1, arrays="model")
    (reply,) = LocalGrid([new_app(named)]).send_and_receive([Message(content(), 1000, "train")])
    assert not reply.has_error()
    assert load_personal(tmp_path, 0).rounds == 1
