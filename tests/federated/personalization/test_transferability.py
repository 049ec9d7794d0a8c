"""Identities of the method (its spec, 9.1) on a small network with batch normalisation, stacked and one by one."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data import load_federation
from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError, DataError
from holdfast.federated import (
    FineTuned,
    FineTuning,
    FlippedLabel,
    JustTrainTwice,
    Near,
    Rounds,
    Transferability,
    UpWeighted,
    personalize,
)
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.adversarial import craft, search_budget, transfer
from holdfast.federated.personalization.early_stopping import RECORDED, AttackedClients, EarlyStoppedFineTuning
from holdfast.federated.personalization.transferability import consistency, distance
from holdfast.federated.post_hoc import Personalized
from holdfast.models import build
from holdfast.primitives.pgd import Pgd
from tests.federated.toy import convolutional, linear, toy_clients

SIZES = (16, 16, 24, 24)
SETTINGS = Rounds(batch_size=8, learning_rate=2e-3, optimizer="adam", executor="serial")
ATTACK = Pgd(0.3, bounds=None)
BUDGET = {"epsilon": 0.3, "pixels": False}


def clients() -> Clients:
    plain = toy_clients(sizes=SIZES, shape=(1, 8, 8))
    shifted = replace(plain.test, inputs=plain.test.inputs + 0.3)
    groups = torch.arange(len(plain.train.labels)) % 4 == 0
    return replace(plain, elsewhere=shifted, train=replace(plain.train, groups=groups.long()))


def shared() -> nn.Module:
    """A shared model that knows something."""
    model, data = convolutional(norm=True, tracked=True), clients().train
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(data.inputs), data.labels).backward()
        optimizer.step()
    return model


def run(*methods: EarlyStoppedFineTuning, **changes: object) -> Personalized:
    return personalize(clients(), shared(), replace(SETTINGS, **changes), methods)  # type: ignore[arg-type]


def rows(result: Personalized, label: str) -> Tensor:
    return result.runtime.personal(label, torch.arange(len(SIZES)), result.weights)


def fixed(adversarial: float, weights: float, **options: object) -> Transferability:
    return Transferability(
        adversarial=adversarial, weights=weights, search=False, **BUDGET, epochs=2, checkpoints=2, **options
    )  # type: ignore[arg-type]


def test_consistency_is_the_cross_entropy_of_soft_predictions():
    torch.manual_seed(0)
    shared_logits, own = torch.randn(2, 7, 4, dtype=torch.float64)
    own.requires_grad_()
    (gradient,) = torch.autograd.grad(consistency(shared_logits, own).sum(), own)
    torch.testing.assert_close(gradient, own.softmax(-1) - shared_logits.softmax(-1))
    p = shared_logits.softmax(-1)
    torch.testing.assert_close(consistency(shared_logits, shared_logits), -(p * p.log()).sum(-1))
    torch.testing.assert_close(consistency(shared_logits + 3, own - 2), consistency(shared_logits, own))
    assert (consistency(shared_logits, own) >= consistency(shared_logits, shared_logits)).all()


def test_the_distance_has_a_unit_gradient_and_none_at_the_shared_model():
    torch.manual_seed(0)
    w, at = torch.randn(9), torch.randn(3, 9, requires_grad=True)
    torch.testing.assert_close(distance(at, w), (at - w).norm(dim=1))
    (gradient,) = torch.autograd.grad(distance(at, w).sum(), at)
    torch.testing.assert_close(gradient.norm(dim=1), torch.ones(3))
    here = w.repeat(2, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(distance(here, w).sum(), here)
    assert not gradient.any()
    torch.testing.assert_close(distance(at, w, "half-squared"), (at - w).square().sum(1) / 2)


def test_at_the_shared_model_everything_transfers():
    data, network = clients(), Network(shared())
    crafted = craft(network, network.initial, data.test, torch.tensor([2, 0]), ATTACK)
    for place in (0, 1):
        found = transfer(network, network.initial, crafted, place)
        assert (found.rate, found.same_class, found.loss) == (1, 1, 0)
    assert torch.equal(crafted.clean[crafted.of(1)], data.test.of(0)[0])


def test_without_both_terms_it_is_fine_tuning_to_the_bit():
    plain = FineTuned(**BUDGET, epochs=2, checkpoints=2)
    result = run(fixed(0.0, 0.0), plain)
    assert torch.equal(rows(result, "transferability"), rows(result, "ft"))
    last = run(replace(plain, keep="last"), FineTuning(epochs=2))
    torch.testing.assert_close(rows(last, "ft"), rows(last, "finetuning"), rtol=1e-4, atol=1e-6)


def test_the_benign_variant_is_the_method_without_a_budget_and_ditto_is_the_distance_alone():
    benign = fixed(1.0, 0.1, on="benign", called="benign")
    no_budget = replace(fixed(1.0, 0.1, called="none"), epsilon=0.0)
    models = run(replace(benign, keep="last"), replace(no_budget, keep="last"))
    torch.testing.assert_close(rows(models, "benign"), rows(models, "none"))
    near = Near(lambda_=0.5, **BUDGET, epochs=2, checkpoints=2, keep="last")
    result = run(near, fixed(0.0, 0.5, keep="last"))
    assert torch.equal(rows(result, "near"), rows(result, "transferability"))


def test_cached_targets_are_those_of_the_shared_model_and_stay_with_their_examples():
    data, network = clients(), Network(shared())
    runtime = ClientRuntime(data, network, SETTINGS)
    ids = torch.tensor([3, 1])
    steps = torch.tensor([6, 4])
    stack = StackedClients(runtime.training, ids, network.initial, drawn=torch.zeros_like(ids), steps=steps)
    crafted = AttackedClients(stack, ATTACK).train
    for batch in stack.batches():
        places = crafted.places(batch)
        assert torch.equal(crafted.clean[places], batch.inputs)
        assert torch.equal(crafted.labels[places], batch.labels)
        again = network.outputs(network.initial.repeat(len(batch), 1), crafted.inputs[places])
        torch.testing.assert_close(crafted.logits[places], again, rtol=1e-4, atol=1e-5)
        away = (crafted.inputs[places] - batch.inputs).abs()
        assert 0 < away.max() <= 0.3 + 1e-6


@pytest.fixture(scope="module")
def digits() -> tuple[Clients, nn.Module]:
    """Painted digits and a shared model that has seen them in both environments."""
    clients = load_federation("painted-digits", clients=4)
    model = build("cnn-28-small", clients.input_shape, clients.classes)
    assert clients.elsewhere is not None
    inputs = torch.cat([clients.test.inputs, clients.elsewhere.inputs, clients.train.inputs])
    labels = torch.cat([clients.test.labels, clients.elsewhere.labels, clients.train.labels])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for order in (torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch)) for epoch in range(4)):
        for rows in order.split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    return clients, model


class WrongSign(Transferability):
    """As printed, without the minus."""

    def regularizer(self, at, now, batch, client):
        found = super().regularizer(at, now, batch, client)
        return None if found is None else -found


def test_the_method_keeps_what_transfers_stays_near_and_needs_its_minus(digits):
    settings = Rounds(batch_size=16, learning_rate=2e-3, optimizer="adam", executor="serial")
    common = {"epsilon": 0.1, "epochs": 6, "checkpoints": 1, "keep": "last"}
    held = {"search": False, **common}
    methods = [
        FineTuned(**common),
        Transferability(adversarial=1.0, weights=0.0, **held),
        Transferability(adversarial=0.0, weights=1.0, called="weights", **held),
        WrongSign(adversarial=1.0, weights=0.0, called="wrong", **held),
    ]
    result = personalize(*digits, settings, methods)
    records = {
        label: method.record(result.runtime.stores[label], result.runtime.training)[:, -1].nanmean(0)
        for label, method in result.runtime.post_hoc.items()
        if isinstance(method, EarlyStoppedFineTuning)
    }
    seen = {label: dict(zip(RECORDED, record.tolist(), strict=True)) for label, record in records.items()}
    assert seen["transferability"]["transfer"] > seen["ft"]["transfer"] + 0.1
    assert seen["weights"]["distance"] < 0.5 * seen["ft"]["distance"]
    assert seen["wrong"]["validation"] < seen["transferability"]["validation"] - 0.2


@pytest.mark.parametrize("chunk", [2, 4])
def test_stacked_clients_are_tuned_as_one_by_one(chunk):
    methods = [
        fixed(1.0, 0.1),
        FlippedLabel(**BUDGET, epochs=2, checkpoints=2),
        UpWeighted(**BUDGET, epochs=2),
    ]
    descent = {"optimizer": "sgd", "learning_rate": 0.05}  # Adam's first steps are signs, which rounding turns
    one, many = run(*methods, **descent), run(*methods, **descent, executor="batched", chunk=chunk)
    for label in one.runtime.post_hoc:
        torch.testing.assert_close(rows(one, label), rows(many, label), rtol=1e-3, atol=1e-4)


def test_two_workers_give_the_same_bits():
    one, two = run(fixed(1.0, 0.1)), run(fixed(1.0, 0.1), executor="pool", workers=2)
    assert torch.equal(rows(one, "transferability"), rows(two, "transferability"))


def test_what_is_recorded_is_what_the_model_does():
    result = run(replace(fixed(1.0, 0.1), keep="last"))
    method = result.runtime.post_hoc["transferability"]
    assert isinstance(method, EarlyStoppedFineTuning)
    last = method.record(result.runtime.stores[method.label], result.runtime.training)[:, -1]
    scores = result.runtime.score(torch.arange(4), "test", result.weights, "transferability")
    torch.testing.assert_close(last[:, RECORDED.index("accuracy")].double(), scores.accuracy, rtol=0, atol=1e-6)
    other = result.runtime.score(torch.arange(4), "elsewhere", result.weights, "transferability")
    torch.testing.assert_close(
        last[:, RECORDED.index("accuracy_elsewhere")].double(), other.accuracy, rtol=0, atol=1e-6
    )
    assert last[:, RECORDED.index("step")].tolist() == [4, 4, 6, 6]


def test_clients_with_little_validation_data_take_one_checkpoint_that_suits_them_all():
    result = run(FineTuned(**BUDGET, epochs=4, checkpoints=4))
    method = result.runtime.post_hoc["ft"]
    assert isinstance(method, FineTuned)
    assert method.common is not None
    record = method.record(result.runtime.stores[method.label], result.runtime.training)
    means = record[:, :, RECORDED.index("validation")].mean(0)
    assert means[method.common] == means.max()
    assert set(method.chosen(result.runtime.stores[method.label], result.runtime.training).tolist()) == {method.common}


def test_coefficients_are_the_largest_that_validation_allows(monkeypatch):
    seen: list[tuple[float, float]] = []

    def accuracy(executor, shared, method):
        seen.append((method.adversarial, method.weights))
        return 0.9 if method.adversarial <= 1 and method.weights <= 0.1 else 0.5

    where = "holdfast.federated.personalization.transferability."
    monkeypatch.setattr(where + "_validation_accuracy", accuracy)
    monkeypatch.setattr(where + "_mean_accuracy", lambda *_: 0.902)
    result = run(Transferability(**BUDGET, rule="end", joint=False, search=False, epochs=1, checkpoints=1))
    method = result.runtime.post_hoc["transferability"]
    assert isinstance(method, Transferability)
    assert (method.adversarial, method.weights) == (1.0, 0.1)
    assert seen == [(10.0, 0.0), (1.0, 0.0), (1.0, 10.0), (1.0, 1.0), (1.0, 0.1)]


def test_where_no_coefficient_is_admissible_the_smallest_is_taken_and_said(monkeypatch, caplog):
    where = "holdfast.federated.personalization.transferability."
    monkeypatch.setattr(where + "_validation_accuracy", lambda *_: 0.1)
    monkeypatch.setattr(where + "_mean_accuracy", lambda *_: 0.9)
    result = run(Transferability(**BUDGET, rule="end", joint=False, search=False, epochs=1, checkpoints=1))
    method = result.runtime.post_hoc["transferability"]
    assert isinstance(method, Transferability)
    assert (method.adversarial, method.weights) == (0.01, 0.01)
    assert "validation accuracy falls" in caplog.text


def test_the_budget_ends_where_some_but_not_most_are_fooled(caplog):
    network = Network(shared())
    runtime = ClientRuntime(clients(), network, SETTINGS)
    found = search_budget(runtime.training, network.initial, Pgd(3.0, bounds=None))
    assert 0.3 <= found.path[-1][1] <= 0.5
    assert found.path[0][0] == 3.0 and not found.weak
    assert all(later[0] < 3.0 for later in found.path[1:])
    weak = search_budget(runtime.training, network.initial, Pgd(1e-6, bounds=None))
    assert weak.weak and weak.epsilon == 1e-6
    run(replace(fixed(1.0, 0.0), search=True, epsilon=1e-6, epochs=1, checkpoints=1))
    assert "the attack is weak" in caplog.text


def test_counterexamples_are_drawn_half_of_the_time():
    """2 percent, 50 times as often: 0.505 of the draws."""
    data = toy_clients(sizes=(1000,))
    groups = (torch.arange(1000) < 20).long()
    runtime = ClientRuntime(
        replace(data, train=replace(data.train, groups=groups)), Network(linear()), Rounds(batch_size=50)
    )
    ids = torch.tensor([0])
    stack = StackedClients(runtime.training, ids, runtime.network.initial, drawn=ids * 0, steps=torch.tensor([400]))
    drawn = torch.cat([batch.rows.flatten() for batch in UpWeighted().batches(AttackedClients(stack, ATTACK))])
    assert float((drawn < 20).double().mean()) == pytest.approx(0.505, abs=0.02)
    with pytest.raises(DataError, match="counterexamples"):
        UpWeighted().marked(
            AttackedClients(
                StackedClients(
                    LocalTraining(data, runtime.network, Rounds()),
                    ids,
                    runtime.network.initial,
                    drawn=ids,
                    steps=ids + 1,
                ),
                ATTACK,
            ),
            0,
        )


def test_jtt_draws_the_mistakes_of_its_first_model_more_often(digits):
    clients, model = digits
    settings = Rounds(batch_size=16, learning_rate=1e-4, optimizer="adam", executor="serial")
    runtime = ClientRuntime(clients, Network(model), settings)
    ids = torch.tensor([2])
    stack = StackedClients(runtime.training, ids, runtime.network.initial, drawn=ids * 0, steps=torch.tensor([300]))
    client, method = AttackedClients(stack, ATTACK), JustTrainTwice(first_epochs=1)
    mistakes = method.marked(client, 0)
    assert 0 < mistakes.sum() < len(mistakes)
    drawn = torch.cat([batch.rows.flatten() for batch in method.batches(client)]) - clients.train.offsets[2]
    share = 50 * mistakes.sum() / (50 * mistakes.sum() + (~mistakes).sum())
    assert float(mistakes[drawn].double().mean()) == pytest.approx(float(share), abs=0.03)
    found = personalize(clients, model, settings, [JustTrainTwice(epochs=1, first_epochs=1, checkpoints=1)])
    assert found.reports["jtt"].mean > 0.5


def test_flipped_labels_are_added_to_the_training_data():
    data, network = clients(), Network(shared())
    runtime = ClientRuntime(data, network, SETTINGS)
    ids = torch.tensor([2])
    stack = StackedClients(runtime.training, ids, network.initial, drawn=ids * 0, steps=torch.tensor([30]))
    client = AttackedClients(stack, ATTACK)
    batches = list(FlippedLabel(**BUDGET).batches(client))
    fooled = ~network.correct(client.train.logits, client.train.labels)
    added = client.train.inputs[fooled]
    seen = torch.cat([batch.inputs[0] for batch in batches])
    labels = torch.cat([batch.labels[0] for batch in batches])
    for image, label in zip(added, client.train.logits.argmax(-1)[fooled], strict=True):
        places = (seen == image).flatten(1).all(1)
        assert places.any()
        assert (labels[places] == label).all()


def test_what_cannot_work_is_refused():
    for wrong in ({"adversarial": -1.0}, {"weights": float("nan")}, {"checkpoints": 0}, {"epochs": 0}):
        with pytest.raises(ConfigError):
            Transferability(**wrong)
    with pytest.raises(ConfigError, match="lambda"):
        Near(lambda_=-0.1)
    with pytest.raises(ConfigError):
        UpWeighted(factor=0.0)


#: A federation of which only the sizes of validation sets are asked.
EVERYBODY = SimpleNamespace(
    training=SimpleNamespace(clients=SimpleNamespace(validation=SimpleNamespace(counts=torch.tensor([100]))))
)


class _Curves:
    """Validation accuracy at checkpoints, as a pair of coefficients makes it: strong ones dip, weak ones gain."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, curves: dict[tuple[float, float], list[float]]) -> None:
        self.tried: list[tuple[float, float]] = []
        self.curves = curves
        module = "holdfast.federated.personalization.transferability"
        monkeypatch.setattr(f"{module}._validation_accuracy", self.end)
        monkeypatch.setattr(f"{module}._curve", lambda everybody, method: self.of(method))
        monkeypatch.setattr(f"{module}._mean_accuracy", lambda everybody, shared, label: 0.80)

    def of(self, method: Transferability) -> list[float]:
        return self.curves.get((method.adversarial, method.weights), [0.7, 0.7])

    def end(self, everybody: object, shared: object, method: Transferability) -> float:
        self.tried.append((method.adversarial, method.weights))
        return self.of(method)[-1]


CURVES = {
    (10.0, 10.0): [0.78, 0.80],  # dips, and is back at the end
    (10.0, 1.0): [0.81, 0.79],  # falls from what it had reached
    (1.0, 10.0): [0.79, 0.83],
    (1.0, 1.0): [0.82, 0.85],
    (0.0, 0.0): [0.85, 0.86],
    (0.1, 1.0): [0.85, 0.86],
}


@pytest.mark.parametrize(
    ("rule", "expected"), [("throughout", (1.0, 1.0)), ("end", (10.0, 10.0)), ("fine-tuning", (0.1, 1.0))]
)
def test_the_largest_coefficients_are_taken_that_the_rule_admits(monkeypatch, rule, expected):
    curves = _Curves(monkeypatch, CURVES)
    method = Transferability(rule=rule, search=False, keep="last")
    chosen = method.choose_hyperparameters(EVERYBODY, None)
    assert (chosen.adversarial, chosen.weights) == expected
    products = [a * w for a, w in curves.tried if (a, w) != (0.0, 0.0)]
    assert products == sorted(products, reverse=True), "the strongest pairs are tried first"


def test_one_after_the_other_sees_only_a_cross_of_the_grid(monkeypatch):
    curves = _Curves(monkeypatch, {**CURVES, (1.0, 0.0): [0.82, 0.84]})
    chosen = Transferability(search=False, joint=False, keep="last").choose_hyperparameters(EVERYBODY, None)
    assert (chosen.adversarial, chosen.weights) == (1.0, 1.0)
    assert curves.tried == [(10.0, 0.0), (1.0, 0.0), (1.0, 10.0), (1.0, 1.0)]


def test_where_nothing_is_admissible_the_weakest_is_taken_and_said(monkeypatch, caplog):
    _Curves(monkeypatch, {})
    chosen = Transferability(search=False, keep="last").choose_hyperparameters(EVERYBODY, None)
    assert (chosen.adversarial, chosen.weights) == (0.01, 0.01)
    assert "with every coefficient validation accuracy falls" in caplog.text
