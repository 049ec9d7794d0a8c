import logging
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError, DataError
from holdfast.federated import (
    Apfl,
    Attack,
    Ditto,
    Expectation,
    FedProx,
    FedSGD,
    FineTuning,
    Krum,
    L2Sgd,
    LabelPoisoning,
    Local,
    Mean,
    RandomUpdates,
    Rounds,
    SignFlip,
    Term,
    Threat,
    TrimmedMean,
    federate,
)
from holdfast.federated.federation import Federation
from holdfast.federated.preparation import prepare
from holdfast.federated.result import FederationResult
from holdfast.training.run import Run
from tests.federated.toy import convolutional, linear, toy_clients

SETTINGS = Rounds(rounds=6, cohort=4, batch_size=8, learning_rate=0.1, executor="serial", evaluate_every=2)


def run(**changes: object) -> FederationResult:
    return federate(toy_clients(), linear(), SETTINGS, **changes)  # type: ignore[arg-type]


def test_a_federation_of_one_client_is_sgd():
    whole = toy_clients(sizes=(40,))
    settings = Rounds(rounds=5, cohort=1, batch_size=40, local_steps=1, learning_rate=0.1, executor="serial")
    outcome = federate(whole, linear(), settings)
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(whole.train.inputs), whole.train.labels).backward()
        optimizer.step()
    wanted = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(outcome.weights, wanted, rtol=1e-5, atol=1e-6)


def test_everything_is_a_function_of_the_seed():
    one, again = run(personalize=[Ditto(0.5)]), run(personalize=[Ditto(0.5)])
    assert torch.equal(one.weights, again.weights)
    assert one.history == again.history
    other = federate(toy_clients(), linear(), Rounds(**{**vars(SETTINGS), "seed": 1}))
    assert not torch.equal(one.weights, other.weights)


def test_compared_methods_see_the_same_clients_the_same_attackers_and_the_same_start():
    threat = Threat(RandomUpdates(), 0.4)
    one, other = run(threat=threat), run(threat=threat, objective=Term(t=1.0), aggregator=Mean())
    assert torch.equal(one.malicious, other.malicious)
    assert len(one.malicious) == 3
    assert torch.equal(one.joined, other.joined)


def test_bytes_are_those_of_the_shared_model_whatever_is_personalized():
    plain, ditto, term = run(), run(personalize=[Ditto(1.0), Local()]), run(objective=Term())
    assert plain.bytes_up == ditto.bytes_up == 6 * 4 * 4 * plain.network.size
    assert plain.bytes_down == ditto.bytes_down
    assert term.bytes_up == plain.bytes_up + 6 * 4 * 8


def test_history_has_the_evaluated_rounds_and_the_last():
    assert [entry["round"] for entry in run().history] == [2, 4, 6]


@dataclass(frozen=True)
class Poisonous(Attack):
    """Sends something that is no number."""

    name: ClassVar[str] = "poisonous"
    value: float = float("nan")

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        return torch.full_like(updates[malicious], self.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_updates_that_are_not_finite_are_dropped_and_counted_and_never_averaged(value, caplog):
    threat = Threat(Poisonous(value), 0.3)
    with caplog.at_level(logging.WARNING):
        outcome = run(threat=threat)
    joined = int(outcome.joined[outcome.malicious].sum())
    assert outcome.dropped == joined > 0
    assert outcome.weights.isfinite().all()
    assert outcome.diverged_at is None
    assert str(outcome.malicious.tolist()[0]) in caplog.text


def test_a_round_in_which_every_update_is_dropped_leaves_the_model_alone():
    federation = _federation(threat=Threat(Poisonous(), 0.5))
    federation._combine(torch.arange(4), torch.full((4, federation.network.size), torch.nan), torch.zeros(4))
    assert torch.equal(federation.state.weights, federation.network.initial)
    assert federation.state.dropped == 4


def test_a_shared_model_that_overflows_is_frozen_where_it_was_and_personal_models_go_on():
    everybody = Rounds(**{**vars(SETTINGS), "cohort": 8})

    def under(threat: Threat) -> FederationResult:
        methods = [Local(), Ditto(0.0)]
        return federate(toy_clients(), linear(), everybody, threat=threat, personalize=methods)

    outcome, calm = under(Threat(Poisonous(3e38), 0.5)), under(Threat(SignFlip(), 0.5))
    assert outcome.diverged_at is not None
    assert outcome.weights.isfinite().all()
    assert outcome.weights.abs().max() > 1e30
    for label in ("local", "ditto-0"):
        assert outcome.reports[label].summary() == calm.reports[label].summary()


def test_clients_that_never_took_part_are_evaluated_with_the_shared_model():
    settings = Rounds(**{**vars(SETTINGS), "rounds": 1, "cohort": 2})
    outcome = federate(toy_clients(), linear(), settings, personalize=[Local()])
    absent = (outcome.joined == 0).nonzero().flatten()
    assert len(absent) == 6
    shared, own = outcome.reports["global"].scores, outcome.reports["local"].scores
    assert torch.equal(shared.correct[absent], own.correct[absent])
    assert not torch.allclose(shared.loss, own.loss)


def test_the_personal_model_of_a_client_is_a_module():
    outcome = run(personalize=[Ditto(1.0)])
    client = int(outcome.joined.argmax())
    inputs, labels = toy_clients().test.of(client)
    predicted = outcome.personal("ditto-1", client)(inputs).argmax(1)
    assert float((predicted == labels).double().mean()) == outcome.reports["ditto-1"].scores.accuracy[client]


def _federation(**changes: object) -> Federation:
    return Federation(prepare(toy_clients(), linear(), SETTINGS, **changes), None)  # type: ignore[arg-type]


def test_what_cannot_work_is_refused_before_work():
    with pytest.raises(ConfigError, match="lower the cohort"):
        federate(toy_clients(), linear(), Rounds(cohort=9))
    with pytest.raises(ConfigError, match="diverge"):
        run(personalize=[Ditto(30.0)])
    with pytest.raises(ConfigError, match="two personalization methods"):
        run(personalize=[Ditto(1.0), Ditto(1.0)])
    with pytest.raises(ConfigError, match="trimmed"):
        run(threat=Threat(LabelPoisoning(), 0.5), aggregator=TrimmedMean())
    with pytest.raises(ConfigError, match="can't be combined"):
        run(objective=Term(), aggregator=Krum())
    with pytest.raises(ConfigError):
        run(threat=Threat(LabelPoisoning(), 1.5))


def test_a_client_without_training_data_is_refused_by_name():
    some = toy_clients()
    empty = ClientPart.of_counts(some.train.inputs, some.train.labels, torch.tensor([5, 0, 23, 40, 8, 17, 31, 15]))
    with pytest.raises(DataError, match="client 1 has no training examples"):
        federate(Clients(empty, some.validation, some.test, 3), linear(), SETTINGS)


def test_clients_of_one_class_and_rules_past_their_breakdown_point_are_logged(caplog):
    some = toy_clients()
    labels = some.train.labels.clone()
    labels[:28] = 1
    skewed = Clients(ClientPart(some.train.inputs, labels, some.train.offsets), some.validation, some.test, 3)
    with caplog.at_level(logging.WARNING):
        many = Threat(LabelPoisoning(), 0.7)
        federate(
            skewed, linear(), SETTINGS, threat=many, aggregator=Krum(), expect_malicious=Expectation(expect_by="mean")
        )
    assert "2 of 8 clients have training examples of one class only" in caplog.text
    assert "krum" in caplog.text.lower()


def test_a_method_that_drives_the_shared_model_and_a_pull_on_it_are_refused_together():
    with pytest.raises(ConfigError, match="can't pull on it"):
        run(objective=FedProx(0.1), personalize=[L2Sgd()])


def test_gradient_methods_refuse_adam_and_mixing_methods_refuse_running_statistics():
    adam = replace(SETTINGS, optimizer="adam")
    with pytest.raises(ConfigError, match="fedsgd is defined by gradient steps"):
        federate(toy_clients(), linear(), adam, objective=FedSGD())
    with pytest.raises(ConfigError, match="l2sgd is defined by gradient steps"):
        federate(toy_clients(), linear(), adam, personalize=[L2Sgd()])
    images, tracking = toy_clients(shape=(1, 8, 8)), convolutional(norm=True, tracked=True)
    with pytest.raises(ConfigError, match="apfl mixes models"):
        federate(images, tracking, SETTINGS, personalize=[Apfl()])


def test_running_statistics_are_averaged_like_weights():
    settings = Rounds(rounds=1, cohort=2, batch_size=16, learning_rate=0.1, executor="serial", sampling="uniform")
    model, both = convolutional(norm=True, tracked=True), toy_clients(sizes=(16, 16), shape=(1, 8, 8))

    def alone(client: int) -> Clients:
        parts = []
        for part in (both.train, both.validation, both.test):
            rows = slice(int(part.offsets[client]), int(part.offsets[client + 1]))
            counts = part.counts[client : client + 1]
            parts.append(ClientPart.of_counts(part.inputs[rows], part.labels[rows], counts))
        return Clients(parts[0], parts[1], parts[2], both.classes)

    together = federate(both, model, settings)
    each = [federate(alone(client), model, replace(settings, cohort=1)).weights for client in range(2)]
    statistics = slice(together.network.trainable, None)
    assert not torch.allclose(each[0][statistics], each[1][statistics])
    torch.testing.assert_close(together.weights, (each[0] + each[1]) / 2)
    torch.testing.assert_close(together.model().get_submodule("1").running_var, together.weights[-4:])


def test_a_run_is_held_from_the_first_look_at_its_state(tmp_path):
    place = Run.create(tmp_path / "run", {})
    federate(toy_clients(), linear(), SETTINGS, run=place, personalize=[FineTuning(epochs=1)])
    before = place.metrics_mark()
    other = Run.open(tmp_path / "run")
    other.lock()
    with pytest.raises(ConfigError, match="another process"):
        federate(toy_clients(), linear(), SETTINGS, run=place, personalize=[FineTuning(epochs=1)])
    assert place.metrics_mark() == before
    saved = place.load_checkpoint()
    assert (saved["stores"]["finetuning"]["places"] > 0).all()
    assert saved["seconds"] > 0
