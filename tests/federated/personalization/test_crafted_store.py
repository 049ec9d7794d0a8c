"""Adversarial examples are made once for a federation, are those of a fresh attack, and are not another model's."""

import pytest
import torch

from holdfast.federated import FineTuned, Rounds, personalize
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.federated.personalization import crafted_store, early_stopping
from holdfast.federated.personalization.adversarial import craft
from holdfast.federated.personalization.early_stopping import AttackedClients
from holdfast.primitives.pgd import Pgd
from tests.federated.toy import linear, toy_clients

SETTINGS = Rounds(batch_size=8, executor="serial")
ATTACK = Pgd(0.3, bounds=None)


@pytest.fixture
def attacks(monkeypatch):
    """What was attacked: a client and a budget each time."""
    made = []

    def counted(network, shared, part, clients, attack):
        made.append((clients.tolist(), attack.epsilon))
        return craft(network, shared, part, clients, attack)

    monkeypatch.setattr(early_stopping, "craft", counted)
    return made


def training() -> LocalTraining:
    clients = toy_clients(sizes=(16, 16))
    return LocalTraining(clients, Network(linear(), clients.task), SETTINGS)


def attacked(over: LocalTraining, shared: torch.Tensor, attack: Pgd = ATTACK) -> AttackedClients:
    one = torch.tensor([1])
    return AttackedClients(over.stacked(one, shared, drawn=torch.zeros(1), steps=torch.ones(1)), attack)


def test_a_second_method_with_the_same_budget_attacks_nobody_again(attacks):
    first = FineTuned(epochs=1, checkpoints=1, epsilon=0.3, pixels=False, called="first")
    second = FineTuned(epochs=2, checkpoints=1, epsilon=0.3, pixels=False, called="second")
    together = personalize(toy_clients(sizes=(16, 16)), linear(), SETTINGS, [first, second])
    of_both, clients = len(attacks), torch.arange(2)
    alone = personalize(toy_clients(sizes=(16, 16)), linear(), SETTINGS, [second])
    assert of_both == len(attacks) - of_both
    rows = [result.runtime.stores["second"].read(clients).nan_to_num() for result in (together, alone)]
    assert torch.equal(*rows)


def test_another_model_or_budget_is_attacked_anew(attacks):
    over = training()
    shared = over.network.initial
    first, other = attacked(over, shared).train, attacked(over, shared + 1).train
    stronger = attacked(over, shared + 1, Pgd(0.6, bounds=None)).train
    assert len(attacks) == 3
    assert not torch.equal(first.logits, other.logits)
    assert not torch.equal(other.inputs, stronger.inputs)


def test_what_is_beyond_the_bound_is_made_anew_each_time(attacks, monkeypatch):
    monkeypatch.setattr(crafted_store, "_LARGEST", 10)
    over = training()
    for _ in range(2):
        made = attacked(over, over.network.initial).train
    assert len(attacks) == 2
    assert torch.equal(
        made.inputs, craft(over.network, over.network.initial, over.clients.train, torch.tensor([1]), ATTACK).inputs
    )
