from dataclasses import replace

import pytest
import torch
import tyro
from torch import nn

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Bulyan, Krum, Mean, Median
from holdfast.federated.attacks import Gaussian, LabelPoisoning, ModelReplacement, RandomUpdates
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.executors import InProcess
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.expectation import Expectation
from holdfast.federated.metrics.scoring import score_models
from holdfast.federated.personalization import (
    Ditto,
    DynamicDitto,
    ParallelDitto,
    best_lambda,
    resolve,
    strong_attack,
    strong_in_the_documents,
)
from holdfast.federated.personalization.ditto.adaptive import AdaptiveDitto
from holdfast.federated.personalization.ditto.oracle import validation_accuracy
from tests.federated.personalization.toy import SETTINGS, clients, model, part, rows, run

DOCUMENTS = Expectation(expect_by="mean")
SMALL = clients(validation=(3, 2, 0, 1, 3, 3, 2, 3))
LARGE = clients(validation=(4, 6, 5, 5, 8, 9, 7, 4))


class Untouchable:
    """A part of the data that may be counted over clients and nothing else."""

    def __len__(self):
        return 8

    def __getattr__(self, name):
        raise AssertionError(f"{name} of the test data was read")


@pytest.fixture
def tried(monkeypatch):
    """Every call that compares candidates: clients and losses (candidates, clients)."""
    calls = []
    original = LocalTraining.mean_losses

    def spy(training, part, ids, models):
        losses = original(training, part, ids, models)
        calls.append((ids.clone(), losses))
        return losses

    monkeypatch.setattr(LocalTraining, "mean_losses", spy)
    return calls


# -------------------------------------------------------------------------------------------------- who may choose


def change_data(outcome, **parts):
    runtime = outcome.runtime
    runtime.training = replace(runtime.training, clients=replace(runtime.clients, **parts))


def chosen(runtime, method):
    return method.chosen(runtime.stores[method.label], runtime.training)


@pytest.mark.parametrize(
    ("threat", "strong"),
    [
        (None, False),
        (Threat(LabelPoisoning(), 0.5), False),
        (Threat(RandomUpdates(), 0.5), False),
        (Threat(LabelPoisoning(), 0.8), True),
        (Threat(RandomUpdates(), 0.8), True),
        (Threat(ModelReplacement(), 0.1), True),
    ],
)
def test_in_the_documents_an_attack_is_strong_if_it_replaces_models_or_has_the_majority(threat, strong):
    assert strong_in_the_documents(threat) is strong
    strongly, usually = ((0.05, 0.1, 0.2), 0.1), ((0.1, 1.0, 2.0), 1.0)
    candidates, small = strongly if strong else usually
    assert resolve([Ditto("auto")], strong) == [DynamicDitto(candidates=candidates, small_lambda=small)]
    expected = DOCUMENTS.resolve(50, SETTINGS, 10)
    assert strong_attack(threat, Median(), expected) is strong


@pytest.mark.parametrize("attack", [Gaussian(1.0), LabelPoisoning(), ModelReplacement()])
def test_otherwise_it_is_strong_if_the_rule_of_the_server_promises_nothing_against_so_many(attack):
    everybody = replace(SETTINGS, cohort=50)

    def strong(expectation, aggregator, settings=everybody):
        return strong_attack(Threat(attack, 0.4), aggregator, expectation.resolve(50, settings, 20))

    assert strong(Expectation(), Mean())  # whatever the attack is, Gaussian noise of size 1 included
    assert not strong(Expectation(), Median())
    assert not strong(Expectation(), Krum())
    assert strong(Expectation(), Bulyan())
    assert strong(Expectation(0.5), Median())
    assert strong(Expectation(), Median(), replace(SETTINGS, cohort=10))
    assert not strong(Expectation(0), Mean())
    assert not strong_attack(None, Mean(), Expectation().resolve(50, everybody, None))


def test_candidates_of_a_strong_attack_may_be_others():
    ditto = Ditto("auto", candidates=(0.3, 0.5), strong_candidates=(0.01,))
    assert [resolve([ditto], strong)[0].candidates for strong in (False, True)] == [(0.3, 0.5), (0.01,)]
    assert resolve([Ditto("auto", candidates=(0.3, 0.5))], True)[0].candidates == (0.3, 0.5)


@pytest.mark.parametrize(
    ("threat", "lambda_"),
    [
        (None, 1.0),
        (Threat(RandomUpdates(), 0.8), 0.1),
        (Threat(ModelReplacement(), 0.2), 0.1),
    ],
)
@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_where_every_client_is_small_nothing_is_tried_and_dynamic_is_a_fixed_lambda_to_the_bit(
    tried, threat, lambda_, executor
):
    settings = replace(SETTINGS, executor=executor, chunk=3 if executor == "batched" else None)
    outcome = run(Ditto("auto"), Ditto(lambda_), data=SMALL, threat=threat, settings=settings)
    assert tried == []
    size = outcome.network.size
    assert torch.equal(rows(outcome, "ditto-auto")[:, :size], rows(outcome, f"ditto-{lambda_:g}"))
    assert torch.equal(outcome.reports["ditto-auto"].accuracies, outcome.reports[f"ditto-{lambda_:g}"].accuracies)
    (method,) = [method for method in outcome.runtime.alongside if isinstance(method, DynamicDitto)]
    counts = chosen(outcome.runtime, method)
    assert torch.equal(counts[:, method.lambdas.index(lambda_)], outcome.joined * SETTINGS.local_steps)
    assert counts.sum() == outcome.joined.sum() * SETTINGS.local_steps


def test_in_a_mixed_federation_small_clients_try_nothing_and_keep_the_fixed_lambda(tried):
    for executor, chunk in [("serial", None), ("batched", 4)]:
        tried.clear()
        outcome = run(Ditto("auto"), Ditto(1.0), settings=replace(SETTINGS, executor=executor, chunk=chunk))
        small = outcome.runtime.clients.validation.counts < 4
        assert small.any()
        assert tried
        assert not small[torch.cat([ids for ids, _ in tried])].any()
        dynamic = rows(outcome, "ditto-auto")[:, : outcome.network.size]
        torch.testing.assert_close(dynamic[small], rows(outcome, "ditto-1")[small], rtol=1e-6, atol=1e-7)


# -------------------------------------------------------------------------------------------------- what is chosen


def test_a_client_keeps_the_candidate_with_the_lowest_validation_loss(monkeypatch, tried):
    """After each step the model's own validation loss is the lowest of those that were compared."""
    original = DynamicDitto.step_on
    checked = []

    def step_on(self, rows, batch, local, stack):
        tried.clear()
        before = rows.clone()
        original(self, rows, batch, local, stack)
        network, data = stack.network, stack.data.validation
        after = score_models(network, rows[:, : network.size], data, batch.clients).loss
        gradient = stack.gradient(before[:, : network.size], batch)
        v = before[:, : network.size]
        losses = torch.stack(
            [
                score_models(network, v - 0.1 * (gradient + lam * (v - stack.received)), data, batch.clients).loss
                for lam in self.candidates
            ]
        )
        torch.testing.assert_close(after, losses.min(0).values, rtol=1e-6, atol=1e-7)
        checked.append(losses)

    monkeypatch.setattr(DynamicDitto, "step_on", step_on)
    run(Ditto("auto"), data=LARGE, settings=replace(SETTINGS, executor="batched", chunk=4))
    assert len(torch.cat([losses.argmin(0) for losses in checked]).unique()) > 1


def test_a_strong_attack_changes_what_is_tried():
    usual, strong = (
        run(Ditto("auto"), data=LARGE, threat=threat) for threat in (None, Threat(ModelReplacement(), 0.2))
    )
    assert usual.runtime.alongside[0].lambdas == (0.1, 1.0, 2.0)
    assert strong.runtime.alongside[0].lambdas == (0.05, 0.1, 0.2)


def test_own_candidates_replace_the_usual_ones():
    outcome = run(Ditto("auto", candidates=(0.05, 0.3)), data=LARGE)
    method = outcome.runtime.alongside[0]
    assert method.lambdas == (0.05, 0.3, 1.0)
    counts = chosen(outcome.runtime, method)
    assert counts[:, :2].sum() == outcome.joined.sum() * SETTINGS.local_steps
    assert counts[:, 2].sum() == 0


def test_a_candidate_that_diverges_is_not_chosen():
    class Explosive(nn.Linear):
        """Has no finite output where a weight is beyond one half."""

        def forward(self, inputs):
            return super().forward(inputs) + torch.where(self.weight.abs().max() > 0.5, torch.nan, 0.0)

    runtime = ClientRuntime(LARGE, Network(Explosive(4, 3)), SETTINGS)
    far, near = torch.ones(2, runtime.network.size), torch.zeros(2, runtime.network.size)
    choice = AdaptiveDitto._choose(
        DynamicDitto(candidates=(0.1, 2.0)), runtime.training, torch.tensor([1, 5]), torch.stack([far, near])
    )
    assert choice.tolist() == [2, 2]


# -------------------------------------------------------------------------------------------------- parallel


def test_parallel_models_are_those_of_fixed_lambdas_and_the_best_on_validation_data_is_used():
    outcome = run(Ditto("parallel"), Ditto(0.1), Ditto(1.0), Ditto(2.0))
    kept = rows(outcome, "ditto-parallel").view(8, 3, -1)
    fixed = torch.stack([rows(outcome, f"ditto-{lam}") for lam in ("0.1", "1", "2")], dim=1)
    assert torch.equal(kept, fixed)
    (method,) = [method for method in outcome.runtime.alongside if isinstance(method, ParallelDitto)]
    counts = chosen(outcome.runtime, method)
    everybody = torch.arange(8)
    personal = outcome.runtime.personal("ditto-parallel", everybody, outcome.weights)
    losses = torch.stack(
        [
            outcome.runtime.score(everybody, "validation", outcome.weights, f"ditto-{lam}").loss
            for lam in ("0.1", "1", "2")
        ]
    )
    for client in everybody.tolist():
        if outcome.joined[client] == 0:
            assert counts[client].sum() == 0
            continue
        small = outcome.runtime.clients.validation.counts[client] < 4
        expected = 1 if small else int(losses[:, client].argmin())
        assert counts[client].tolist() == [int(place == expected) for place in range(3)]
        assert torch.equal(personal[client], fixed[client, expected])


def test_what_every_client_chose_is_recorded():
    outcome = run(Ditto("auto"), Ditto("parallel"), Ditto(1.0))
    dynamic, parallel, _ = outcome.runtime.alongside
    assert dynamic.lambdas == (0.1, 1.0, 2.0)
    steps, ends = chosen(outcome.runtime, dynamic), chosen(outcome.runtime, parallel)
    assert torch.equal(steps.sum(1), outcome.joined * SETTINGS.local_steps)
    assert torch.equal(ends.sum(1), (outcome.joined > 0).long())


# -------------------------------------------------------------------------------------------------- no test data


@pytest.mark.parametrize("method", [DynamicDitto(), ParallelDitto()], ids=lambda method: method.label)
def test_test_data_is_never_read_while_lambda_is_chosen(method):
    guarded = replace(clients(), test=Untouchable())
    runtime = ClientRuntime(guarded, Network(model()), SETTINGS, [method])
    executor, everybody = InProcess(runtime, 4), torch.arange(8)
    received = runtime.network.initial + 0.1
    executor.round(0, everybody, torch.zeros(8, dtype=torch.int64), received)
    assert chosen(runtime, method).sum() > 0
    assert runtime.personal(method.label, everybody, received).isfinite().all()
    with pytest.raises(AssertionError, match="was read"):
        executor.score_all("test", received)


# -------------------------------------------------------------------------------------------------- the oracle


def test_the_best_lambda_has_the_best_mean_validation_accuracy_over_benign_clients_and_reads_no_test_data():
    outcome = run(Ditto(2.0), Ditto(0.0), Ditto(0.5), threat=Threat(LabelPoisoning(), 0.4))
    change_data(outcome, test=Untouchable())
    benign = [k for k in range(8) if k not in outcome.malicious.tolist() and clients().validation.counts[k] > 0]
    means = {}
    for method in outcome.runtime.alongside:
        scores = outcome.runtime.score(torch.tensor(benign), "validation", outcome.weights, method.label)
        means[method.label] = sum(scores.accuracy.tolist()) / len(benign)
        assert validation_accuracy(outcome, method) == pytest.approx(means[method.label], abs=1e-12)
    found = best_lambda(outcome)
    assert means[found.label] == max(means.values())
    assert found.strength == min(
        method.strength for method in outcome.runtime.alongside if means[method.label] == max(means.values())
    )


def test_malicious_clients_have_no_say_in_the_best_lambda():
    outcome = run(Ditto(2.0), Ditto(0.0), threat=Threat(LabelPoisoning(), 0.4))
    before = [validation_accuracy(outcome, method) for method in outcome.runtime.alongside]
    labels = outcome.runtime.clients.validation.labels.clone()
    owners = outcome.runtime.clients.validation.owners()
    labels[torch.isin(owners, outcome.malicious)] = 0
    change_data(outcome, validation=replace(outcome.runtime.clients.validation, labels=labels))
    assert [validation_accuracy(outcome, method) for method in outcome.runtime.alongside] == before
    labels[torch.isin(owners, outcome.malicious, invert=True)] = 0
    assert [validation_accuracy(outcome, method) for method in outcome.runtime.alongside] != before


def test_the_oracle_needs_fixed_lambdas_and_validation_data():
    with pytest.raises(ConfigError, match="no Ditto with a fixed lambda"):
        best_lambda(run(Ditto("auto")))
    bare = replace(clients(), validation=part([0] * 8, 1))
    with pytest.raises(ConfigError, match="no benign client has validation data"):
        best_lambda(run(Ditto(1.0), data=bare))


# -------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Ditto("auto")),
        (["--lambda_", "0.5"], Ditto(0.5)),
        (["--lambda_", "parallel", "--candidates", "0.1", "0.3"], Ditto("parallel", candidates=(0.1, 0.3))),
        (["--anchor", "local"], Ditto("auto", anchor="local")),
    ],
)
def test_the_command_line_takes_a_number_or_a_word_for_lambda(words, expected):
    assert tyro.cli(Ditto, args=words) == expected


def test_a_federation_must_settle_how_lambda_is_chosen_first():
    with pytest.raises(ConfigError, match="lambda is 'auto'"):
        ClientRuntime(clients(), Network(model()), SETTINGS, [Ditto("auto")])


def test_candidates_are_checked():
    with pytest.raises(ConfigError, match="lambda is -1"):
        resolve([Ditto("auto", candidates=(-1.0, 1.0))], False)
    with pytest.raises(ConfigError, match="no candidates"):
        DynamicDitto(candidates=())
    with pytest.raises(ConfigError, match="lambda 30 times"):
        run(Ditto("parallel", candidates=(1.0, 30.0)))
