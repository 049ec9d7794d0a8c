"""Numbers instead of classes, and losses and scores of the user's own."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import r2_score
from torch import Tensor, nn

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError, DataError
from holdfast.federated import (
    Ditto,
    FineTuning,
    LabelPoisoning,
    Rounds,
    Skl,
    Threat,
    WithPolicy,
    federate,
    personalize,
)
from holdfast.federated.personalization import best_lambda
from holdfast.streams import torch_stream
from tests.federated.toy import toy_clients

SIZES = (9, 1, 5, 3, 8, 20, 7, 6, 12, 4, 11, 2)
SETTINGS = {
    "rounds": 4,
    "cohort": 12,
    "batch_size": 4,
    "local_steps": 3,
    "learning_rate": 0.05,
    "workers": 2,
    "chunk": 5,
}


def linear_problem(numbers: int = 1) -> Clients:
    """Clients with a linear rule of their own near a common one, some noise, and at least one test example."""
    generator = torch_stream(0, "numbers")

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rule = draw(4, numbers)
    parts = []
    for sizes in (SIZES, tuple(size // 3 for size in SIZES), tuple(1 + size // 2 for size in SIZES)):
        inputs = draw(sum(sizes), 4)
        own = torch.repeat_interleave(draw(len(sizes), numbers), torch.tensor(sizes), 0)
        targets = inputs @ rule + 0.3 * own + 0.1 * draw(sum(sizes), numbers)
        parts.append(ClientPart.of_counts(inputs, targets if numbers > 1 else targets[:, 0], torch.tensor(sizes)))
    return Clients(*parts, classes=numbers, task="regression").check()


def model(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, outputs).double()


@pytest.mark.parametrize("numbers", [1, 3])
@pytest.mark.parametrize("executor", ["serial", "batched", "pool", "auto"])
def test_a_regression_is_least_squares_and_its_report_has_errors_and_r2(executor, numbers):
    clients = linear_problem(numbers)
    settings = Rounds(**SETTINGS, executor=executor)
    outcome = federate(clients, model(numbers), settings, personalize=[Ditto(0.1)])
    report, module = outcome.reports["global"], outcome.model()
    predicted = module(clients.test.inputs).detach().numpy().reshape(len(clients.test.labels), -1)
    targets = clients.test.labels.numpy().reshape(predicted.shape)
    by_example = ((predicted - targets) ** 2).mean(1)
    owners = clients.test.owners().numpy()
    errors = np.array([by_example[owners == client].mean() for client in range(len(clients))])
    assert report.measure == "mean squared error"
    assert report.accuracies.numpy() == pytest.approx(errors)
    assert report.mean == pytest.approx(errors.mean()) == pytest.approx(report.loss)
    assert report.pooled == pytest.approx(by_example.mean())
    assert report.worst == pytest.approx(errors.max()) == pytest.approx(report.worst_tenth)
    assert report.r2 == pytest.approx(1 - by_example.mean() / targets.var(0).mean())
    assert report.summary()["r2"] == report.r2
    for client in range(len(clients)):
        mine = owners == client
        if mine.sum() == 1:
            assert math.isnan(report.client_r2[client])
        elif numbers == 1:
            assert float(report.client_r2[client]) == pytest.approx(r2_score(targets[mine], predicted[mine]))
    assert report.r2 > 0.5
    assert outcome.reports["ditto-0.1"].pooled != report.pooled


def test_executors_agree_on_a_regression():
    one = federate(linear_problem(), model(), Rounds(**SETTINGS, executor="serial"))
    for executor in ("batched", "pool"):
        other = federate(linear_problem(), model(), Rounds(**SETTINGS, executor=executor))
        torch.testing.assert_close(other.weights, one.weights, rtol=0, atol=1e-12)
        torch.testing.assert_close(other.reports["global"].accuracies, one.reports["global"].accuracies)


def test_one_step_on_everybody_is_the_gradient_of_the_mean_squared_error():
    clients = linear_problem()
    settings = Rounds(rounds=1, cohort=12, batch_size=99, local_steps=1, learning_rate=0.1, executor="serial")
    outcome = federate(clients, model(), settings)
    moved = []
    for client in range(len(clients)):
        inputs, targets = clients.train.of(client)
        plain = model()
        F.mse_loss(plain(inputs)[:, 0], targets).backward()
        moved.append(torch.cat([parameter.grad.flatten() for parameter in plain.parameters()]))
    wanted = outcome.network.initial - 0.1 * torch.stack(moved).mean(0)
    torch.testing.assert_close(outcome.weights, wanted)


def test_the_best_lambda_of_a_regression_has_the_lowest_error():
    outcome = federate(
        linear_problem(), model(), Rounds(**SETTINGS, executor="serial"), personalize=[Ditto(0.0), Ditto(5.0)]
    )
    counted = outcome.runtime.clients.validation.counts > 0
    errors = {
        label: float(
            outcome.runtime.score(counted.nonzero().flatten(), "validation", outcome.weights, label).accuracy.mean()
        )
        for label in ("ditto-0", "ditto-5")
    }
    assert best_lambda(outcome).label == min(errors, key=errors.__getitem__)


def quantile(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of the upper tenth."""
    error = targets - outputs.squeeze(-1)
    return torch.maximum(0.9 * error, -0.1 * error)


def covered(outputs: Tensor, targets: Tensor) -> Tensor:
    return (targets <= outputs.squeeze(-1)).double()


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_a_loss_and_a_score_of_the_users_own_are_what_is_lowered_and_reported(executor):
    settings = Rounds(**{**SETTINGS, "rounds": 40, "evaluate_every": 0}, executor=executor)
    outcome = federate(linear_problem(), model(), settings, loss=quantile, score=covered)
    clients, report = linear_problem(), outcome.reports["global"]
    outputs = outcome.model()(clients.test.inputs).detach()
    assert report.measure == "score"
    assert report.pooled == pytest.approx(float(covered(outputs, clients.test.labels).mean()))
    assert 0.75 < report.pooled < 1
    losses = quantile(outputs, clients.test.labels)
    owners = clients.test.owners()
    assert report.loss == pytest.approx(
        float(torch.stack([losses[owners == client].mean() for client in range(len(clients))]).mean())
    )
    assert report.worst == float(report.accuracies.min())


def test_a_loss_without_a_score_is_the_score():
    report = federate(linear_problem(), model(), Rounds(**SETTINGS, executor="serial"), loss=quantile).reports["global"]
    assert report.measure == "loss"
    assert report.mean == pytest.approx(report.loss)
    assert report.worst == float(report.accuracies.max())


class NextWord(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.words(x))[0])


def test_targets_may_be_sequences_where_the_loss_is_the_users_own():
    generator = torch_stream(1, "words")
    texts = torch.randint(0, 9, (24, 7), generator=generator)
    part = ClientPart.of_counts(texts[:, :-1], texts[:, 1:], torch.tensor([10, 3, 11]))
    clients = Clients(part, part, part, classes=9).check()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)

    results = [
        federate(
            clients,
            _same(NextWord),
            Rounds(rounds=2, cohort=3, batch_size=4, executor=executor, chunk=3),
            loss=loss,
        )
        for executor in ("serial", "batched")
    ]
    torch.testing.assert_close(results[0].weights, results[1].weights, rtol=0, atol=1e-12)
    assert results[0].reports["global"].loss == pytest.approx(
        float(torch.stack([loss(results[0].model()(part.of(k)[0]), part.of(k)[1]).mean() for k in range(3)]).mean())
    )


def _same(make: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().double()


def test_personal_models_of_a_regression_without_a_federation():
    found = personalize(linear_problem(), model(), Rounds(executor="serial"), [FineTuning(epochs=3)])
    assert found.reports["finetuning"].pooled < found.reports["global"].pooled


def test_what_cannot_be_is_refused_with_a_sentence():
    settings = Rounds(**SETTINGS, executor="serial")
    with pytest.raises(ConfigError, match="skl is made for classes"):
        federate(linear_problem(), model(), settings, personalize=[Skl()])
    with pytest.raises(ConfigError, match="made for classes"):
        federate(linear_problem(), model(), settings, personalize=[WithPolicy()])
    with pytest.raises(ConfigError, match="a regression has none"):
        federate(linear_problem(), model(), settings, threat=Threat(LabelPoisoning(), 0.2))
    with pytest.raises(ConfigError, match="return a number for each"):
        federate(linear_problem(), model(), settings, loss=lambda outputs, targets: F.mse_loss(outputs[:, 0], targets))
    with pytest.raises(ConfigError, match="as many outputs as there are targets"):
        federate(linear_problem(3), model(2), settings)


def test_targets_are_checked_and_saved(tmp_path):
    clients = linear_problem()
    clients.save(tmp_path / "numbers")
    again = Clients.open(tmp_path / "numbers")
    assert again.task == "regression" and torch.equal(again.test.labels, clients.test.labels)
    assert again.fingerprint() == clients.fingerprint()
    assert clients.summary().classes_per_client.largest == 0
    clients.validation.labels[2] = torch.inf
    with pytest.raises(DataError, match="not finite"):
        clients.check()
    whole = toy_clients()
    with pytest.raises(DataError, match="floating point"):
        Clients(whole.train, whole.validation, whole.test, 1, "regression").check()
