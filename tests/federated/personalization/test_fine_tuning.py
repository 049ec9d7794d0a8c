from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError
from holdfast.federated.engine.batches import BatchStream
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.executors import Executor
from holdfast.federated.engine.network import Network
from holdfast.federated.federation import federate
from holdfast.federated.personalization import Ewc, FineTuning, PostHocPersonalizer, Skl
from holdfast.federated.personalization import fine_tuning as tuning
from holdfast.federated.personalization.distances import fisher_diagonal, symmetric_divergence
from holdfast.federated.settings import Rounds
from holdfast.training.run import Run
from tests.federated.personalization.toy import SETTINGS, clients, model, rows, run
from tests.federated.toy import linear, toy_clients

EVERYBODY = torch.arange(8)


def tuned(method, chunk=8, settings=SETTINGS, data=None, net=None):
    """Personal models of a method, from a shared model that is somewhere."""
    runtime = ClientRuntime(data or clients(), Network(net or model(), (data or clients()).task), settings, [method])
    shared = runtime.network.initial + 0.1
    for group in torch.split(EVERYBODY, chunk):
        runtime.personalize(method, group, shared)
    return runtime.stores[method.label].read(EVERYBODY), shared, runtime


def test_fine_tuning_takes_the_published_number_of_steps():
    """max(floor(E n / B), E) steps: at least one pass in name for clients smaller than a batch."""
    runtime = ClientRuntime(clients(), Network(model()), SETTINGS, [FineTuning(epochs=5)])
    sizes = clients().train.counts
    expected = [max(5 * n // 8, 5) for n in sizes.tolist()]
    assert runtime.training.post_hoc_steps(runtime.post_hoc["finetuning"].epochs, EVERYBODY).tolist() == expected


def test_fine_tuning_is_a_plain_loop_from_the_shared_model():
    found, shared, runtime = tuned(FineTuning(epochs=2, lambda_=0.5))
    for client, n in enumerate(runtime.clients.train.counts.tolist()):
        inputs, labels = runtime.clients.train.of(client)
        v = shared.clone()
        for chosen in BatchStream(SETTINGS.seed, 8).rows(client, n, 0, max(2 * n // 8, 2)):
            net = runtime.network.load(v).train()
            nn.functional.cross_entropy(net(inputs[chosen]), labels[chosen]).backward()
            gradient = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
            v = v - 0.1 * (gradient + 0.5 * (v - shared))
        torch.testing.assert_close(found[client], v, rtol=1e-5, atol=1e-6)


def test_learning_rates_that_were_halved_in_the_rounds_stay_so():
    settings = replace(SETTINGS, rounds=4, halve_every=2)
    found, _, _ = tuned(FineTuning(epochs=2), settings=settings)
    expected, _, _ = tuned(FineTuning(epochs=2), settings=replace(SETTINGS, learning_rate=0.05))
    assert torch.equal(found, expected)


# -------------------------------------------------------------------------------------------------- EWC


def test_ewc_where_every_parameter_matters_the_same_is_ditto_by_fine_tuning(monkeypatch):
    monkeypatch.setattr(tuning, "fisher_diagonal", lambda stack, of: torch.ones(len(stack), len(stack.received)))
    assert torch.equal(tuned(Ewc(epochs=3, lambda_=0.7))[0], tuned(FineTuning(epochs=3, lambda_=0.7))[0])


@pytest.mark.parametrize("of", ["batches", "examples"])
def test_the_fisher_diagonal_is_the_mean_squared_gradient_of_four_batches_or_of_their_examples(of):
    runtime = ClientRuntime(clients(), Network(model()), SETTINGS, [FineTuning(epochs=1)])
    seen = []

    class Watching(FineTuning):
        def personalize(self, stack):
            seen.append((stack.clients, fisher_diagonal(stack, of)))
            return stack.copies()

    runtime.personalize(Watching(epochs=1), EVERYBODY, runtime.network.initial)
    ids, found = seen[0]
    for client, row in zip(ids.tolist(), found, strict=True):
        inputs, labels = runtime.clients.train.of(client)
        squares = []
        for chosen in BatchStream(SETTINGS.seed, 8).rows(client, len(labels), 0, 4):
            parts = [chosen] if of == "batches" else chosen.split(1)
            of_batch = []
            for part in parts:
                net = model()
                nn.functional.cross_entropy(net(inputs[part]), labels[part]).backward()
                of_batch.append(torch.cat([parameter.grad.flatten() for parameter in net.parameters()]) ** 2)
            squares.append(torch.stack(of_batch).mean(0))
        torch.testing.assert_close(row, torch.stack(squares).mean(0), rtol=1e-4, atol=1e-8)


def test_examples_without_a_gradient_of_their_own_have_no_fisher_information():
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    with pytest.raises(ConfigError, match="depends on the others of its batch"):
        run(Ewc(epochs=1, fisher="examples"), net=net)


# -------------------------------------------------------------------------------- from an early-stopped shared model


@pytest.mark.parametrize("method", [FineTuning(epochs=2), FineTuning(epochs=2, lambda_=0.5), Ewc(epochs=2)])
def test_to_start_after_some_rounds_is_to_stop_the_shared_training_there(method):
    settings = replace(SETTINGS, halve_every=2)
    early = replace(method, after=3)
    found = run(early, settings=settings)
    stopped = run(method, settings=replace(settings, rounds=3))
    assert early.label == f"{method.label}-after-3"
    assert torch.equal(rows(found, early.label), rows(stopped, method.label))
    assert not torch.equal(found.weights, stopped.weights)


def test_several_starts_share_one_federation_and_a_killed_one_goes_on(tmp_path, monkeypatch):
    methods = [FineTuning(epochs=1, after=number) for number in (1, 4, 6)]
    whole = run(*methods)
    record, calls, trained = Run.create(tmp_path / "run", {}), iter(range(5)), ClientRuntime.train

    def interrupted(*args):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        trained(*args)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ClientRuntime, "train", interrupted)
        run(*methods, settings=replace(SETTINGS, checkpoint_seconds=0.0), run=record)
    again = run(*methods, settings=replace(SETTINGS, checkpoint_seconds=0.0), run=Run.open(record.path))
    for method in methods:
        assert torch.equal(rows(again, method.label), rows(whole, method.label))
    assert not torch.equal(rows(whole, "finetuning-after-1"), rows(whole, "finetuning-after-6"))
    assert torch.equal(rows(whole, "finetuning-after-6"), rows(run(FineTuning(epochs=1)), "finetuning"))


def test_rounds_that_are_not_there_are_no_start():
    with pytest.raises(ConfigError, match="after 7 rounds, and there are 6"):
        run(FineTuning(epochs=1, after=7))
    with pytest.raises(ConfigError, match="after 0 rounds"):
        Ewc(after=0)


# -------------------------------------------------------------------------------------------------- SKL


def test_the_divergence_is_the_sum_of_both_kl_divergences():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    p, q = torch.distributions.Categorical(logits=a), torch.distributions.Categorical(logits=b)
    expected = torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)
    torch.testing.assert_close(symmetric_divergence(a, b), expected, rtol=1e-12, atol=1e-14)


def skl_setting():
    """A double-precision classifier, one client's data, and a direction."""
    data = clients()
    part = replace(data.train, inputs=data.train.inputs.double())
    double = Clients(part, replace(data.validation, inputs=data.validation.inputs.double()), data.test, data.classes)
    runtime = ClientRuntime(double, Network(model().double()), SETTINGS, [Skl()])
    generator = torch.Generator().manual_seed(1)
    delta = torch.randn(runtime.network.size, generator=generator, dtype=torch.float64)
    return runtime, delta / delta.norm()


def exact_fisher(network, w, inputs):
    """Mean over inputs of J^T (diag p - p p^T) J, J the Jacobian of the logits."""
    jacobian = torch.func.jacrev(lambda row: network.outputs(row[None], inputs[None])[0])(w)
    p = network.outputs(w[None], inputs[None])[0].softmax(-1)
    spread = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return torch.einsum("ncp,ncd,ndq->pq", jacobian, spread, jacobian) / len(inputs)


def test_half_the_divergence_is_the_fisher_form_up_to_third_order():
    """Halving the step divides the difference by about eight, and so the pull's gradient by about four."""
    runtime, delta = skl_setting()
    network, w = runtime.network, runtime.network.initial
    inputs = runtime.clients.train.inputs[:12]
    fisher = exact_fisher(network, w, inputs)
    differences = []
    for scale in (0.1, 0.05, 0.025):
        v = w + scale * delta
        logits = [network.outputs(row[None], inputs[None])[0] for row in (v, w)]
        half = symmetric_divergence(*logits).mean() / 2
        differences.append(abs(float(half - (scale * delta) @ fisher @ (scale * delta) / 2)))
        assert differences[-1] < 0.2 * float(half)
    assert differences[0] / differences[1] > 6.5
    assert differences[1] / differences[2] > 6.5


def test_the_pull_of_skl_is_the_gradient_of_half_the_divergence_averaged_over_the_batch():
    runtime, delta = skl_setting()
    found = []

    class Watching(Skl):
        def personalize(self, stack):
            batch = next(stack.batches())
            now = stack.copies()[: len(batch)] + 0.1 * delta
            found.append((batch, now, self.away(stack)(now, batch)))
            return stack.copies()

    runtime.personalize(Watching(), EVERYBODY, runtime.network.initial)
    batch, now, pull = found[0]
    step = 1e-6

    def divergence(models):
        shared = runtime.network.initial.repeat(len(batch), 1)
        logits = [runtime.network.outputs(rows, batch.inputs) for rows in (models, shared)]
        return (symmetric_divergence(*logits) * batch.weights).sum(1) / 2

    slope = (divergence(now + step * delta) - divergence(now - step * delta)) / (2 * step)
    torch.testing.assert_close(pull @ delta, slope, rtol=1e-6, atol=1e-8)


def test_skl_treats_a_margin_as_the_logit_of_two_classes():
    data = clients()
    binary = replace(
        data,
        train=replace(data.train, labels=data.train.labels % 2),
        validation=replace(data.validation, labels=data.validation.labels % 2),
        test=replace(data.test, labels=data.test.labels % 2),
        classes=2,
        task="margin",
    )
    net = nn.Linear(4, 1)
    free, shared, _ = tuned(FineTuning(epochs=5), data=binary, net=net)
    close, _, _ = tuned(Skl(epochs=5, lambda_=5.0), data=binary, net=net)
    assert (close - shared).norm(dim=1).mean() < (free - shared).norm(dim=1).mean()


# -------------------------------------------------------------------------------------------------- all


@pytest.mark.parametrize("method", [Ewc, Skl])
def test_without_lambda_every_tuner_is_plain_fine_tuning(method):
    assert torch.equal(tuned(method(epochs=2, lambda_=0.0))[0], tuned(FineTuning(epochs=2))[0])


@pytest.mark.parametrize("method", [FineTuning, Ewc, Skl])
def test_a_larger_lambda_keeps_models_closer_to_the_shared_one(method):
    distances = []
    for lambda_ in (0.0, 1.0, 10.0):
        found, shared, _ = tuned(method(epochs=4, lambda_=lambda_))
        distances.append(float((found - shared).norm(dim=1).mean()))
    assert distances[0] > distances[1] > distances[2]


def test_tuners_start_from_the_final_shared_model_of_a_federation():
    outcome = run(FineTuning(epochs=1), Ewc(epochs=1))
    assert outcome.reports.keys() == {"global", "finetuning", "ewc-1"}
    runtime, everyone = outcome.runtime, rows(outcome, "finetuning")
    runtime.personalize(runtime.post_hoc["finetuning"], EVERYBODY, outcome.weights)
    torch.testing.assert_close(runtime.stores["finetuning"].read(EVERYBODY), everyone, rtol=1e-5, atol=1e-6)


def test_tuners_refuse_what_cannot_work():
    with pytest.raises(ConfigError, match="epochs is 0"):
        FineTuning(epochs=0)
    with pytest.raises(ConfigError, match="lambda is -1"):
        Skl(lambda_=-1.0)
    with pytest.raises(ConfigError, match="lambda 20 times"):
        run(FineTuning(lambda_=20.0))


@dataclass(frozen=True)
class Choosing(FineTuning):
    """Takes the lambda with which clients do best on their validation data."""

    name: ClassVar[str] = "choosing"

    @property
    def label(self) -> str:
        return self.name

    def choose_hyperparameters(self, executor: Executor, shared: Tensor) -> PostHocPersonalizer:
        def score(method: PostHocPersonalizer) -> int:
            executor.personalize_all(method, shared)
            return int(executor.score_all("validation", shared, self.name).correct.sum())

        return max((replace(self, lambda_=lambda_) for lambda_ in (0.0, 15.0)), key=score)


@pytest.mark.parametrize("executor", ["serial", "pool"])
def test_a_tuner_may_choose_for_all_clients_once_the_shared_model_is_known(executor):
    """The shared model is no good, so free fine-tuning is ahead of a strong pull to it."""
    settings = Rounds(rounds=1, cohort=2, learning_rate=0.1, batch_size=8, executor=executor, workers=2)
    outcome = federate(toy_clients(), linear(), settings, personalize=[Choosing(epochs=5), FineTuning(epochs=5)])
    assert isinstance(outcome.runtime.post_hoc["choosing"], Choosing)
    assert outcome.runtime.post_hoc["choosing"].lambda_ == 0
    everybody = torch.arange(len(outcome.runtime.clients))
    rows = [outcome.runtime.personal(label, everybody, outcome.weights) for label in ("choosing", "finetuning")]
    assert torch.equal(*rows)


def test_tuning_uses_the_optimizer_of_the_federation():
    """The very first step of Adam is the learning rate in every direction."""
    one_batch = replace(SETTINGS, optimizer="adam", learning_rate=1e-3, batch_size=1000)
    for method in (FineTuning(epochs=1), Ewc(epochs=1, lambda_=1.0)):
        models, shared, _ = tuned(method, settings=one_batch)
        moved = (models - shared).abs()
        torch.testing.assert_close(moved[moved > 0], torch.full_like(moved[moved > 0], 1e-3), rtol=0.01, atol=0)
