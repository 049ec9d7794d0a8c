from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.executors import InProcess
from holdfast.federated.engine.network import Network
from holdfast.federated.federation import federate
from holdfast.federated.personalization import Mapper
from holdfast.federated.settings import Rounds
from tests.federated.personalization.toy import SETTINGS, Point, Recording, Squares, clients, model, points, rows, run

ALPHAS = (0.25, 0.5, 0.75)


def by_hand(values, rounds, steps, eta):
    """Everybody in every round, one example each."""
    w, v, share = 0.0, [0.0] * len(values), [0.0] * len(values)
    for _ in range(rounds):
        moves = []
        for k, x in enumerate(values):
            found = []
            for alpha in ALPHAS:
                u = v[k]
                for _ in range(steps + 1):
                    u -= eta * alpha * (alpha * u + (1 - alpha) * w - x)
                found.append(((alpha * u + (1 - alpha) * w - x) ** 2 / 2, alpha, u))
            _, share[k], v[k] = min(found)
            moves.append(-eta * (1 - share[k]) * (share[k] * v[k] + (1 - share[k]) * w - x))
        w += sum(moves) / len(moves)
    return w, v, share


def test_rounds_are_those_of_the_algorithm_on_paper(monkeypatch):
    monkeypatch.setattr("holdfast.federated.preparation.Network", Squares)
    values = [1.0, 3.0, -2.0]
    settings = Rounds(rounds=4, cohort=3, batch_size=1, learning_rate=0.2, evaluate_every=0, executor="batched")
    outcome = federate(points(values), Point(), settings, personalize=[Mapper(ALPHAS, epochs=1)])
    w, v, share = by_hand(values, 4, 2, 0.2)
    assert float(outcome.weights) == pytest.approx(w, abs=1e-6)
    torch.testing.assert_close(rows(outcome, "mapper"), torch.tensor([v, share]).T, rtol=1e-5, atol=1e-6)


def test_every_selected_client_moves_the_shared_model_whatever_their_order():
    runtime = ClientRuntime(clients(), Network(model()), SETTINGS, [Mapper()])
    chosen, drawn = torch.tensor([5, 1, 7, 3]), torch.zeros(8, dtype=torch.int64)
    one, _ = InProcess(runtime, 1).round(0, chosen, drawn, runtime.network.initial)
    again = ClientRuntime(clients(), Network(model()), SETTINGS, [Mapper()])
    two, _ = InProcess(again, 1).round(0, chosen.flip(0), drawn, again.network.initial)
    assert torch.equal(one, two)
    assert (one.abs().sum(1) > 0).all()
    recording = Recording()
    outcome = run(Mapper(epochs=1), settings=replace(SETTINGS, rounds=1), aggregator=recording)
    updates, _ = InProcess(ClientRuntime(clients(), Network(model()), SETTINGS, [Mapper()]), 1).round(
        0, outcome.joined.nonzero().flatten(), drawn, outcome.network.initial
    )
    torch.testing.assert_close(recording.steps[0], updates.mean(0), rtol=1e-5, atol=1e-8)


def test_each_client_keeps_the_share_with_the_lowest_training_loss():
    runtime = ClientRuntime(clients(), Network(model()), SETTINGS, [Mapper()])
    everybody, drawn = torch.arange(8), torch.zeros(8, dtype=torch.int64)
    InProcess(runtime, 8).round(0, everybody, drawn, runtime.network.initial)
    losses = {}
    for alpha in ALPHAS:
        one = ClientRuntime(clients(), Network(model()), SETTINGS, [Mapper((alpha,))])
        InProcess(one, 8).round(0, everybody, drawn, one.network.initial)
        losses[alpha] = one.score(everybody, "train", one.network.initial, "mapper").loss
    best = torch.stack(list(losses.values())).argmin(0)
    shares = runtime.stores["mapper"].read(everybody)[:, -1]
    assert torch.equal(shares, torch.tensor(ALPHAS)[best])


def test_the_interpolated_models_are_fine_tuned_in_the_end():
    outcome = run(Mapper(epochs=1))
    runtime, everybody = outcome.runtime, torch.arange(8)
    mixed = runtime.personal("mapper", everybody, outcome.weights)
    tuned = rows(outcome, "mapper-tuned")
    assert outcome.reports.keys() == {"global", "mapper", "mapper-tuned"}
    closer = (tuned - mixed).norm(dim=1) < (tuned - outcome.weights).norm(dim=1)
    assert closer[outcome.joined > 2].all()


def test_shares_are_checked():
    with pytest.raises(ConfigError, match="alphas are"):
        Mapper((0.5, 1.5))
