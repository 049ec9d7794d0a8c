"""SCAFFOLD in somebody's own Flower project: the mod and the strategy give what the simulator gives."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp

from holdfast.errors import ConfigError
from holdfast.federated import Ditto, FedAvg, Mean, Scaffold, federate
from holdfast.federated.engine.client_runtime import SECOND
from holdfast.integrations.flower.messages.replies import SECOND_VECTOR
from holdfast.integrations.flower.mod import PersonalMod
from holdfast.integrations.flower.personal.memory import PersonalFolder, load_personal
from holdfast.integrations.flower.second_vector import SecondVectorMod
from holdfast.integrations.flower.secure import check_secure
from holdfast.integrations.flower.strategies import DROPPED, RobustStrategy
from tests.integrations.flower.local_grid import LocalGrid
from tests.integrations.flower.test_mod_methods import (
    CLIENTS,
    DATA,
    RATE,
    ROUNDS,
    SETTINGS,
    Tied,
    assert_equal,
    batches,
    loss,
    made,
    normed,
    plain,
)

EVERYBODY = torch.arange(CLIENTS)


def mod_for(network, folder, objective=Scaffold(0.8)):  # noqa: B008 - frozen
    return SecondVectorMod(objective, lambda: made(network), loss, batches, folder=folder, learning_rate=RATE)


def client(mod, *before):
    """An app whose train function is never called, since the mod stands in its place."""
    made_here = ClientApp(mods=[*before, mod])

    @made_here.train()
    def train(message, context):
        raise AssertionError("the mod trains")

    return made_here


def variate(folder, number):
    return PersonalFolder(folder / "scaffold", "run-1").load(number).rows["scaffold"]


@pytest.mark.parametrize("network", [plain, normed, Tied])
def test_models_and_control_variates_are_those_of_the_simulator(tmp_path, network):
    personal = PersonalMod(Ditto(0.7), lambda: made(network), loss, batches, folder=tmp_path, learning_rate=RATE)
    grid = LocalGrid([client(mod_for(network, tmp_path), personal)] * CLIENTS)
    strategy = RobustStrategy("mean", Scaffold(0.8), clients=CLIENTS, fraction_evaluate=0.0)
    result = strategy.start(grid, ArrayRecord(made(network).state_dict()), num_rounds=ROUNDS)
    expected = federate(DATA, made(network), SETTINGS, objective=Scaffold(0.8), personalize=[Ditto(0.7)])
    assert not strategy.dropped
    assert_equal(result.arrays.to_torch_state_dict(), expected.network.load(expected.weights).state_dict())
    rows = expected.runtime.stores[SECOND].read(EVERYBODY)
    found = torch.stack([variate(tmp_path, number) for number in range(CLIENTS)])
    torch.testing.assert_close(found, rows, rtol=0, atol=1e-5)  # c_i is a difference over K times the step size
    control = strategy.second["control"]
    assert float(control.abs().max()) == pytest.approx(float(rows.double().mean(0).abs().max()), abs=1e-5)
    models = expected.runtime.personal("ditto-0.7", EVERYBODY, expected.weights)
    for number, row in enumerate(models):
        assert_equal(load_personal(tmp_path, number, run="run-1").model, expected.network.load(row).state_dict())
    plain_model = federate(DATA, made(network), SETTINGS, objective=FedAvg()).weights
    assert (plain_model - expected.weights).abs().max() > 1e-3


def round_of(strategy, grid, arrays, number):
    messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
    return strategy.aggregate_train(number, grid.send_and_receive(messages))


def test_another_strategy_takes_over_and_a_message_that_comes_twice_is_answered_alike(tmp_path):
    def strategy():
        return RobustStrategy("clipping", Scaffold(), clients=CLIENTS, fraction_evaluate=0.0)

    start = ArrayRecord(made(plain).state_dict())
    whole = strategy().start(LocalGrid([client(mod_for(plain, tmp_path / "a"))] * CLIENTS), start, num_rounds=2)
    grid = LocalGrid([client(mod_for(plain, tmp_path / "b"))] * CLIENTS)
    first, then = strategy(), strategy()
    arrays, _ = round_of(first, grid, start, 1)
    then.memory, then.second = first.memory, first.second
    kept = [variate(tmp_path / "b", number) for number in range(CLIENTS)]
    messages = list(then.configure_train(2, arrays, ConfigRecord(), grid))
    once, again = grid.send_and_receive(messages), grid.send_and_receive(messages)
    for name in ("arrays", SECOND_VECTOR):
        answers = [each[0].content[name].to_torch_state_dict() for each in (once, again)]
        assert all(torch.equal(answers[0][key], value) for key, value in answers[1].items())
    assert not torch.equal(variate(tmp_path / "b", 0), kept[0])
    after, _ = then.aggregate_train(2, again)
    assert_equal(after.to_torch_state_dict(), whole.arrays.to_torch_state_dict())


def test_replies_without_a_second_vector_or_with_a_wild_one_are_left_out(tmp_path):
    mod = mod_for(plain, tmp_path)

    def wild(message, context, call_next):
        reply = mod(message, context, call_next)
        record = reply.content[SECOND_VECTOR].to_torch_state_dict()
        reply.content[SECOND_VECTOR] = ArrayRecord({name: value * np.nan for name, value in record.items()})
        return reply

    def silent(message, context, call_next):
        reply = mod(message, context, call_next)
        del reply.content[SECOND_VECTOR]
        return reply

    grid = LocalGrid([client(mod), client(wild), client(silent)])
    strategy = RobustStrategy("mean", Scaffold(), clients=3)
    arrays, metrics = round_of(strategy, grid, ArrayRecord(made(plain).state_dict()), 1)
    assert metrics[DROPPED] == 2
    assert {dropped.reason for dropped in strategy.dropped} == {
        "it has no second vector; the ClientApp needs SecondVectorMod",
        "its update is not finite",
    }
    assert all(value.isfinite().all() for value in arrays.to_torch_state_dict().values())


def test_what_can_not_work_is_said(tmp_path):
    with pytest.raises(ConfigError, match="must know how many clients the federation has"):
        RobustStrategy("mean", Scaffold())
    with pytest.raises(ConfigError, match="scaffold has weights of its own"):
        RobustStrategy("mean", Scaffold(), clients=3, weighted=True)
    with pytest.raises(ConfigError, match="fedavg has no second vector"):
        mod_for(plain, tmp_path, FedAvg())
    with pytest.raises(ConfigError, match="a second vector, which secure aggregation does not hide"):
        check_secure(Mean(), Scaffold())
    grid = LocalGrid([client(mod_for(plain, tmp_path))] * CLIENTS)
    arrays = ArrayRecord(made(plain).state_dict())
    with pytest.raises(ConfigError, match="a round has 3 clients and clients is 2"):
        RobustStrategy("mean", Scaffold(), clients=2).configure_train(1, arrays, ConfigRecord(), grid)
    replies = grid.send_and_receive(RobustStrategy("mean").configure_train(1, arrays, ConfigRecord(), grid))
    assert "the message has no second vector" in replies[0].error.reason
