"""Ditto as a mod of somebody's ClientApp: the steps are Ditto's, the model stays at home, the app notices nothing."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from safetensors.torch import load_file
from torch import nn

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import CheckpointError, ConfigError, DataError
from holdfast.federated import Ditto, Rounds, federate
from holdfast.integrations.flower.mod import PersonalMod, export_personal
from holdfast.integrations.flower.personal.memory import PersonalFolder
from holdfast.integrations.flower.strategies import RobustStrategy
from holdfast.training.state import load_state
from tests.integrations.flower.local_grid import LocalGrid, numbers

CLIENTS, BATCH, STEPS, RATE = 3, 8, 4, 0.2


def data(client):
    generator = torch.Generator().manual_seed(client)
    inputs = torch.randn(STEPS * BATCH, 5, generator=generator)
    return inputs, (inputs @ torch.randn(5, generator=generator) > 0).long()


def new_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(5, 2)


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def batches(message, context):
    inputs, labels = data(int(context.node_config["partition-id"]))
    return zip(inputs.split(BATCH), labels.split(BATCH), strict=True)


def app(mods=(), model=new_model, dropout=0.0, drawn=batches):
    """Somebody's app, which knows nothing of personal models; its training draws random numbers."""
    client = ClientApp(mods=list(mods))

    @client.train()
    def train(message, context):
        shared = model()
        shared.load_state_dict(message.content["arrays"].to_torch_state_dict())
        for inputs, labels in drawn(message, context):
            step = torch.autograd.grad(loss(shared, (F.dropout(inputs, dropout), labels)), list(shared.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(shared.parameters(), step, strict=True):
                    parameter.sub_(gradient, alpha=RATE)
        metrics = MetricRecord(
            {"num-examples": STEPS * BATCH, "partition-id": int(context.node_config["partition-id"])}
        )
        return Message(RecordDict({"arrays": ArrayRecord(shared.state_dict()), "metrics": metrics}), reply_to=message)

    @client.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 4})}), reply_to=message)

    return client


def ditto(folder, lambda_=0.7, **changed):
    options = {"model": new_model, "loss": loss, "batches": batches, "learning_rate": RATE}
    return PersonalMod(Ditto(lambda_), **(options | {"folder": folder} | changed))


def personal_file(folder, client, run="run-1"):
    return PersonalFolder(folder, run).file(client)


def run(grid, rounds, start=None):
    strategy = RobustStrategy(fraction_evaluate=0.0)
    return strategy.start(grid, start or ArrayRecord(new_model().state_dict()), num_rounds=rounds)


def messages(grid, rounds=1, arrays=None, first=1):
    """Train messages of rounds with a shared model that stays, one per node and round."""
    for number in range(first, first + rounds):
        record = RecordDict(
            {
                "arrays": arrays or ArrayRecord(new_model().state_dict()),
                "config": ConfigRecord({"server-round": number}),
            }
        )
        yield [Message(record, node, "train") for node in grid.get_node_ids()]


def personal(folder, client):
    return load_state(personal_file(folder, client))["model"]


def by_hand(client, received, lambda_, start=None):
    """Ditto's steps on softmax regression, with the gradient written out: v <- v - eta (g + lambda (v - w))."""
    w, b = (received[name].double().numpy() for name in ("weight", "bias"))
    v, c = (w.copy(), b.copy()) if start is None else start
    inputs, labels = data(client)
    for x, y in zip(inputs.split(BATCH), labels.split(BATCH), strict=True):
        scores = x.double().numpy() @ v.T + c
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        off = (shares - np.eye(2)[y.numpy()]) / len(y)
        v, c = v - RATE * (off.T @ x.double().numpy() + lambda_ * (v - w)), c - RATE * (off.sum(0) + lambda_ * (c - b))
    return v, c


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 4.0])
def test_the_personal_model_takes_dittos_steps(tmp_path, lambda_):
    grid = LocalGrid([app([ditto(tmp_path, lambda_=lambda_)])] * CLIENTS)
    shared = new_model().state_dict()
    for batch in messages(grid, rounds=2):
        grid.send_and_receive(batch)
    for client in range(CLIENTS):
        v, c = by_hand(client, shared, lambda_, by_hand(client, shared, lambda_))
        found = personal(tmp_path, client)
        np.testing.assert_allclose(found["weight"], v, atol=2e-6)
        np.testing.assert_allclose(found["bias"], c, atol=2e-6)


def test_a_federation_by_flower_gives_the_simulators_personal_models(tmp_path):
    """Shared and personal, with one step on all data per round, so that both see the same batch."""
    whole = BATCH * STEPS
    drawn = [data(client) for client in range(CLIENTS)]
    inputs, labels = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    split = ClientPart.of_counts(inputs, labels, torch.full((CLIENTS,), whole))
    clients = Clients(split, split, split, classes=2)
    settings = Rounds(
        rounds=3, cohort=CLIENTS, batch_size=whole, local_steps=1, learning_rate=RATE, executor="serial", seed=0
    )
    outcome = federate(clients, new_model(), settings, personalize=[Ditto(0.7)])

    def everything(message, context):
        return [data(int(context.node_config["partition-id"]))]

    grid = LocalGrid([app([ditto(tmp_path, batches=everything)], drawn=everything)] * CLIENTS)
    found = run(grid, 3)
    flat = torch.cat([value.flatten() for value in found.arrays.to_torch_state_dict().values()])
    torch.testing.assert_close(flat, outcome.weights, rtol=0, atol=1e-6)
    rows = outcome.runtime.personal("ditto-0.7", torch.arange(CLIENTS), outcome.weights)
    for client in range(CLIENTS):
        flat = torch.cat([value.flatten() for value in personal(tmp_path, client).values()])
        torch.testing.assert_close(flat, rows[client], rtol=0, atol=1e-6)


def test_the_app_and_what_it_sends_are_as_without_the_mod(tmp_path):
    """To the bit, although both models of the app and the mod draw dropout masks."""

    def noisy(model, batch):
        return loss(model, (F.dropout(batch[0], 0.5), batch[1]))

    found = []
    for mods in ([], [ditto(tmp_path, loss=noisy)]):
        grid = LocalGrid([app(mods, dropout=0.3)] * CLIENTS)
        torch.manual_seed(1)
        random.seed(1)
        result = run(grid, 3)
        found.append((result, grid.seen))
    (plain, sent), (with_mod, sent_with_mod) = found
    for name, array in numbers(plain.arrays).items():
        np.testing.assert_array_equal(numbers(with_mod.arrays)[name], array)
    assert [message.content for message in sent_with_mod] == [message.content for message in sent]
    assert len(list(tmp_path.rglob("*.safetensors"))) == CLIENTS


def test_the_personal_model_survives_a_restart_of_its_node(tmp_path):
    through, broken = tmp_path / "through", tmp_path / "broken"
    whole = LocalGrid([app([ditto(through)])] * CLIENTS)
    for batch in messages(whole, rounds=4):
        whole.send_and_receive(batch)
    for first in (1, 3):
        grid = LocalGrid([app([ditto(broken)])] * CLIENTS)
        for batch in messages(grid, rounds=2, first=first):
            grid.send_and_receive(batch)
    for client in range(CLIENTS):
        for name, value in personal(through, client).items():
            assert torch.equal(personal(broken, client)[name], value)
    assert load_state(personal_file(broken, 0))["rounds"] == 4


def test_a_message_that_comes_twice_is_one_round_and_another_run_is_another(tmp_path):
    grid = LocalGrid([app([ditto(tmp_path)])])
    ((message,),) = messages(grid)
    grid.send_and_receive([message])
    once = personal_file(tmp_path, 0).read_bytes()
    grid.send_and_receive([message])
    assert personal_file(tmp_path, 0).read_bytes() == once
    LocalGrid([app([ditto(tmp_path)])], run_id=2).send_and_receive([message])
    assert personal_file(tmp_path, 0).read_bytes() == once
    first, second = (load_state(personal_file(tmp_path, 0, run)) for run in ("run-1", "run-2"))
    assert (second["rounds"], second["seen"]) == (1, [2, "train", 1])
    assert all(torch.equal(second["model"][name], value) for name, value in first["model"].items())


def test_runs_of_one_name_continue_each_other(tmp_path):
    for run_id in (1, 2):
        grid = LocalGrid([app([ditto(tmp_path, run="wards")])], run_id=run_id)
        for batch in messages(grid, rounds=2):
            grid.send_and_receive(batch)
    whole = LocalGrid([app([ditto(tmp_path / "whole")])])
    for batch in messages(whole, rounds=4):
        whole.send_and_receive(batch)
    continued = load_state(personal_file(tmp_path, 0, "wards"))
    assert continued["rounds"] == 4
    for name, value in personal(tmp_path / "whole", 0).items():
        assert torch.equal(continued["model"][name], value)


def test_only_the_owner_may_read_what_is_kept(tmp_path):
    before = os.umask(0)
    try:
        grid = LocalGrid([app([ditto(tmp_path / "open")])])
        for batch in messages(grid):
            grid.send_and_receive(batch)
        export_personal(tmp_path / "open", 0, tmp_path / "mine.safetensors")
    finally:
        os.umask(before)
    made = [*(tmp_path / "open").rglob("*"), tmp_path / "open", tmp_path / "mine.safetensors"]
    assert {path.name: path.stat().st_mode & 0o077 for path in made} == {path.name: 0 for path in made}


def test_running_statistics_are_the_personal_models_own(tmp_path):
    def with_norm():
        torch.manual_seed(0)
        return nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 2))

    grid = LocalGrid([app([ditto(tmp_path, model=with_norm, lambda_=1.0)], model=with_norm)])
    ((message,),) = messages(grid, arrays=ArrayRecord(with_norm().state_dict()))
    grid.send_and_receive([message])
    mean = torch.zeros(5)
    for x in data(0)[0].split(BATCH):
        mean = 0.9 * mean + 0.1 * x.mean(0)
    found = personal(tmp_path, 0)
    torch.testing.assert_close(found["0.running_mean"], mean)
    assert found["0.num_batches_tracked"] == STEPS


@pytest.mark.parametrize("hostile", [float("nan"), float("inf")])
def test_a_shared_model_that_is_not_finite_does_not_destroy_the_personal_one(tmp_path, hostile, caplog):
    grid = LocalGrid([app([ditto(tmp_path, lambda_=9.0)])])
    for batch in messages(grid):
        grid.send_and_receive(batch)
    before = personal_file(tmp_path, 0).read_bytes()
    poisoned = {name: torch.full_like(value, hostile) for name, value in new_model().state_dict().items()}
    for batch in messages(grid, arrays=ArrayRecord(poisoned), first=2, rounds=1):
        grid.send_and_receive(batch)
    assert personal_file(tmp_path, 0).read_bytes() == before
    assert "no longer finite" in caplog.text


def test_scores_of_the_personal_model_are_told_where_wanted(tmp_path):
    def scores(model, message, context):
        return {"loss": float(loss(model, data(int(context.node_config["partition-id"]))))}

    grid = LocalGrid([app([ditto(tmp_path, scores=scores)])] * CLIENTS)
    for batch in messages(grid):
        grid.send_and_receive(batch[:2])
    record = RecordDict({"arrays": ArrayRecord(new_model().state_dict()), "config": ConfigRecord()})
    replies = grid.send_and_receive([Message(record, node, "evaluate") for node in grid.get_node_ids()])
    for client, reply in enumerate(replies):
        model = new_model()
        if client < 2:
            model.load_state_dict(personal(tmp_path, client))
        assert dict(reply.content["metrics"]) == {
            "num-examples": 4,
            "personal-loss": pytest.approx(float(loss(model, data(client)))),
        }
    assert not personal_file(tmp_path, 2).exists()


def test_nothing_is_told_where_nothing_was_asked(tmp_path):
    grid = LocalGrid([app([ditto(tmp_path)])])
    record = RecordDict({"arrays": ArrayRecord(new_model().state_dict())})
    (reply,) = grid.send_and_receive([Message(record, 1000, "evaluate")])
    assert dict(reply.content["metrics"]) == {"num-examples": 4}


def test_a_personal_model_can_be_exported(tmp_path):
    grid = LocalGrid([app([ditto(tmp_path / "personal")])])
    for batch in messages(grid):
        grid.send_and_receive(batch)
    export_personal(tmp_path / "personal", 0, tmp_path / "mine.safetensors")
    model = new_model()
    model.load_state_dict(load_file(tmp_path / "mine.safetensors"))
    assert torch.equal(model.weight, personal(tmp_path / "personal", 0)["weight"])
    with pytest.raises(DataError, match="no personal model of client 7"):
        export_personal(tmp_path / "personal", 7, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match="can't be a file's name"):
        export_personal(tmp_path, "../0", tmp_path / "other.safetensors")


def test_a_damaged_file_is_named_and_not_overwritten(tmp_path):
    grid = LocalGrid([app([ditto(tmp_path)])])
    file = personal_file(tmp_path, 0)
    file.parent.mkdir()
    file.write_bytes(b"not a personal model")
    ((message,),) = messages(grid)
    (reply,) = grid.send_and_receive([message])
    assert CheckpointError.__name__ in reply.error.reason
    assert file.read_bytes() == b"not a personal model"


def test_a_client_without_a_lasting_name_is_told_how_to_get_one(tmp_path):
    grid = LocalGrid([app([ditto(tmp_path, client="client")])])
    ((message,),) = messages(grid)
    (reply,) = grid.send_and_receive([message])
    assert "--node-config 'client=0'" in reply.error.reason


def test_another_network_than_the_servers_is_refused(tmp_path):
    grid = LocalGrid([app([ditto(tmp_path, model=lambda: nn.Linear(4, 2))])])
    ((message,),) = messages(grid)
    (reply,) = grid.send_and_receive([message])
    assert "give PersonalMod the network that the server sends" in reply.error.reason


@pytest.mark.parametrize("lambda_", [-0.1, 10.0, float("nan")])
def test_a_lambda_that_cannot_work_is_refused(tmp_path, lambda_):
    with pytest.raises(ConfigError, match="lambda"):
        ditto(tmp_path, lambda_=lambda_)
