import pytest
import torch

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.client_runtime import Assignment, ClientRuntime
from holdfast.federated.personalization import PerFedAvg
from holdfast.federated.settings import Rounds
from tests.federated.personalization.toy import SETTINGS, Point, Squares, points, rows, run

ALPHA, BETA = 0.3, 0.05


def sent(data, curvature, w, steps=1):
    """What clients send from the model w, in double precision."""
    settings = Rounds(cohort=len(data), batch_size=1, local_steps=steps, learning_rate=ALPHA)
    runtime = ClientRuntime(data, Squares(Point(curvature, torch.float64)), settings, [PerFedAvg(BETA)])
    everybody = torch.arange(len(data))
    order = Assignment(0, everybody, torch.zeros_like(everybody))
    updates, losses = torch.empty(len(data), 1, dtype=torch.float64), torch.empty(len(data))
    runtime.train(order, torch.tensor([w], dtype=torch.float64), updates, losses)
    return updates.flatten(), runtime


@pytest.mark.parametrize("curvature", [0.5, 1.0, 2.0])
def test_on_quadratics_the_step_follows_the_gradient_of_the_meta_objective(curvature):
    values = [1.0, 3.0, -2.0]
    found, _ = sent(points(values, torch.float64), curvature, 0.7)
    meta = torch.tensor([curvature * (1 - ALPHA * curvature) ** 2 * (0.7 - x) for x in values], dtype=torch.float64)
    torch.testing.assert_close(found, -BETA * meta, rtol=0, atol=1e-8 * BETA)


def test_a_step_uses_three_batches_in_turn():
    numbers = torch.tensor([1.0, 5.0, -3.0, 7.0, 2.0, 9.0], dtype=torch.float64)
    part = ClientPart(numbers[:, None], torch.zeros(6, dtype=torch.int64), torch.tensor([0, 6]))
    found, runtime = sent(Clients(part, part, part, 2), 1.5, 0.7, steps=2)
    order = BatchStream(0, 1).rows(0, 6, 0, 6).flatten()
    w = 0.7
    for first, second in ((order[0], order[1]), (order[3], order[4])):
        ahead = w - ALPHA * 1.5 * (w - float(numbers[first]))
        gradient = 1.5 * (ahead - float(numbers[second]))
        w = w - BETA * gradient + ALPHA * BETA * 1.5 * gradient
    assert float(found) == pytest.approx(w - 0.7, abs=1e-10)
    assert runtime.draws(torch.tensor([0])).tolist() == [6]


def test_personal_models_are_one_step_or_fine_tuned():
    outcome = run(PerFedAvg(epochs=2))
    assert outcome.reports.keys() == {"global", "per-fedavg", "per-fedavg-tuned"}
    runtime, client = outcome.runtime, int(outcome.joined.argmax())
    inputs, labels = runtime.clients.train.of(client)
    chosen = BatchStream(SETTINGS.seed, SETTINGS.batch_size).rows(client, len(labels), 0, 1)[0]
    net = outcome.model().train()
    torch.nn.functional.cross_entropy(net(inputs[chosen]), labels[chosen]).backward()
    stepped = outcome.weights - 0.1 * torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    found = runtime.personal("per-fedavg", torch.arange(8), outcome.weights)[client]
    torch.testing.assert_close(found, stepped, rtol=1e-5, atol=1e-6)
    assert rows(outcome, "per-fedavg-tuned").shape == (8, outcome.network.size)


def test_step_sizes_are_positive():
    with pytest.raises(ConfigError, match="beta is 0"):
        PerFedAvg(beta=0.0)
