import pytest
import torch

from holdfast.data import load_federation
from holdfast.errors import ConfigError
from holdfast.federated import Backdoor, Ditto, MultiKrum, Rounds, Threat, federate
from holdfast.federated.attacks import stamp
from holdfast.federated.metrics.backdoor import backdoor_success
from holdfast.federated.metrics.client_report import benign_of
from holdfast.models import build
from tests.federated.toy import toy_clients

ROUNDS = Rounds(rounds=30, cohort=50, learning_rate=0.3, evaluate_every=0, executor="batched")


def test_a_stamp_is_a_patch_in_the_corner_or_the_last_features():
    images = torch.zeros(2, 3, 5, 5)
    stamped = stamp(images, 2, 0.5)
    assert stamped.sum() == 2 * 3 * 4 * 0.5 and bool((stamped[..., -2:, -2:] == 0.5).all())
    assert stamp(torch.zeros(1, 10), 2, 1.0).tolist() == [[0.0] * 6 + [1.0] * 4]
    assert images.sum() == 0


def test_only_malicious_clients_training_examples_are_stamped_and_called_the_target():
    clients, attack = toy_clients(), Backdoor(target=2, size=1, value=9.0, share=0.5)
    poisoned = Threat(attack, 0.3).poison(clients, torch.tensor([1, 4]), 0)
    changed = (poisoned.train.inputs != clients.train.inputs).any(1)
    assert set(clients.train.owners()[changed].tolist()) == {1, 4}
    assert [int(changed[clients.train.owners() == client].sum()) for client in (1, 4)] == [12, 8]
    assert bool((poisoned.train.labels[changed] == 2).all())
    assert torch.equal(poisoned.train.labels[~changed], clients.train.labels[~changed])
    assert poisoned.test is clients.test and poisoned.validation is clients.validation
    again = Threat(attack, 0.3).poison(clients, torch.tensor([1, 4]), 0)
    assert torch.equal(again.train.inputs, poisoned.train.inputs)


def test_what_cannot_be_is_refused():
    for options in ({"share": 0.0}, {"size": 0}):
        with pytest.raises(ConfigError, match="give"):
            Backdoor(**options)
    with pytest.raises(ConfigError, match="there are 3"):
        Backdoor(target=7).poison(toy_clients(), torch.tensor([0]), 0)


def rates(outcome, attack):
    labels, benign = list(outcome.reports), benign_of(outcome.malicious, len(outcome.joined))
    return backdoor_success(outcome.runtime, outcome.weights, labels, attack, benign)


def test_it_works_on_the_mean_and_not_on_a_rule_that_stands_it_while_clean_accuracy_shows_nothing():
    clients, attack, found = load_federation("digits-clients"), Backdoor(target=3), {}
    for rule in (None, MultiKrum()):
        outcome = federate(
            clients,
            build("softmax", (1, 8, 8), 10),
            ROUNDS,
            aggregator=rule,
            threat=Threat(attack, 0.2),
            personalize=[Ditto(0.1)],
        )
        found[rule] = rates(outcome, attack)
        assert outcome.reports["global"].mean > 0.8
    assert found[None]["global"]["success"] > 0.9
    assert found[None]["global"]["without"] < 0.2
    assert found[MultiKrum()]["global"]["success"] < 0.1
    assert found[None]["ditto-0.1"]["success"] < found[None]["global"]["success"]


def test_the_success_rate_is_that_of_a_plain_loop():
    clients, attack = load_federation("digits-clients"), Backdoor(target=3)
    outcome = federate(
        clients, build("softmax", (1, 8, 8), 10), ROUNDS, threat=Threat(attack, 0.2), personalize=[Ditto(0.1)]
    )
    benign = benign_of(outcome.malicious, len(clients))
    for label in ("global", "ditto-0.1"):
        hits = total = 0
        for client in benign.nonzero().flatten().tolist():
            model = outcome.model() if label == "global" else outcome.personal(label, client)
            inputs, labels = clients.test.of(client)
            others = stamp(inputs[labels != 3], attack.size, attack.value)
            hits += int((model.eval()(others).argmax(1) == 3).sum())
            total += len(others)
        assert rates(outcome, attack)[label]["success"] == pytest.approx(hits / total)
