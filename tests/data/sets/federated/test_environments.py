import math

import numpy as np
import pytest
import torch

from holdfast.data.sets.federated.environments import (
    balanced_slots,
    colour_table,
    draw_environments,
    in_own_environment,
    some_clients,
)
from holdfast.errors import ConfigError

LABELS = np.repeat(np.arange(10), 100)


def information(colours: np.ndarray, labels: np.ndarray) -> float:
    """Empirical mutual information in nats."""
    table = np.zeros((colours.max() + 1, labels.max() + 1))
    np.add.at(table, (colours, labels), 1 / len(labels))
    outer = table.sum(1, keepdims=True) * table.sum(0)
    there = table > 0
    return float((table[there] * np.log(table[there] / outer[there])).sum())


@pytest.mark.parametrize(
    ("scheme", "within", "together"), [("swap2", math.log(2), 0), ("cyclic10", math.log(10), math.log(5))]
)
def test_colours_tell_the_label_in_one_environment_and_less_or_nothing_in_both(scheme, within, together):
    table = colour_table(scheme, 10, 1, np.random.default_rng(0))[0]
    for environment in (0, 1):
        assert information(table[environment, LABELS], LABELS) == pytest.approx(within, abs=1e-9)
    both = np.concatenate([table[0, LABELS], table[1, LABELS]])
    assert information(both, np.concatenate([LABELS, LABELS])) == pytest.approx(together, abs=1e-9)


def test_every_client_may_have_an_order_of_colours_of_its_own():
    table = colour_table("client-perm", 10, 5, np.random.default_rng(0))
    assert table.shape == (5, 2, 10)
    for client in table:
        assert all(sorted(colours) == list(range(10)) for colours in client.tolist())
    assert len({tuple(client[0]) for client in table}) == 5


def test_slots_are_balanced_and_no_row_is_on_two_clients():
    partition = balanced_slots(LABELS, 20, 5, np.random.default_rng(1))
    assert len(set(partition.rows.tolist())) == len(partition.rows) == 1000
    owners = np.repeat(np.arange(20), partition.counts)
    holders = [len(set(owners[LABELS[partition.rows] == label].tolist())) for label in range(10)]
    assert holders == [10] * 10
    assert all(len(set(LABELS[partition.of(client)].tolist())) == 5 for client in range(20))


def test_environments_are_shared_as_asked():
    drawn = draw_environments(10, 0.5, np.random.default_rng(0))
    assert sorted(drawn.tolist()) == [0] * 5 + [1] * 5
    assert draw_environments(10, 0.8, np.random.default_rng(0)).sum() == 2
    with pytest.raises(ConfigError, match="from 0 to 1"):
        draw_environments(10, 1.5, np.random.default_rng(0))


def view(rows: np.ndarray, owners: np.ndarray, environment: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([rows, owners, environment], axis=1)).float()


def make(counterexamples: float = 0.0):
    rng = np.random.default_rng(2)
    partition = balanced_slots(LABELS, 20, 5, rng)
    environments = draw_environments(20, 0.5, rng)
    clients = in_own_environment(
        partition, LABELS, environments, view, rng, classes=10, counterexamples=counterexamples
    )
    return clients, environments


def test_clients_see_their_environment_and_are_tested_in_both():
    clients, environments = make()
    assert clients.train.counts.tolist() == [36] * 20
    assert (clients.validation.counts.tolist(), clients.test.counts.tolist()) == ([4] * 20, [10] * 20)
    assert clients.elsewhere is not None
    assert torch.equal(clients.elsewhere.inputs[:, :2], clients.test.inputs[:, :2]), "the same rows of the same clients"
    assert torch.equal(clients.elsewhere.inputs[:, 2], 1 - clients.test.inputs[:, 2])
    rows = [part.inputs[:, 0] for part in (clients.train, clients.validation, clients.test)]
    assert len(set(torch.cat(rows).tolist())) == 1000
    for client in range(20):
        for part in (clients.train, clients.validation, clients.test):
            inputs, labels = part.of(client)
            assert (inputs[:, 2] == environments[client]).all()
            assert torch.equal(torch.from_numpy(LABELS)[inputs[:, 0].long()], labels)
    assert clients.names[0] == f"environment {environments[0]}"


def test_counterexamples_look_as_in_the_other_environment_and_are_marked():
    plain, environments = make()
    clients, _ = make(0.1)
    assert torch.equal(clients.train.inputs[:, :2], plain.train.inputs[:, :2]), "nothing else changes"
    assert clients.train.groups is not None and plain.train.groups is None
    turned = clients.train.inputs[:, 2] != torch.from_numpy(environments)[clients.train.owners()]
    assert torch.equal(turned.long(), clients.train.groups)
    assert torch.bincount(clients.train.owners()[turned]).tolist() == [4] * 20
    with pytest.raises(ConfigError, match="counterexamples"):
        make(1.0)


def test_some_clients_are_those_clients():
    clients, _ = make(0.1)
    some = some_clients(clients, [7, 2])
    assert len(some) == 2 and some.names == (clients.names[7], clients.names[2])
    assert some.elsewhere is not None and clients.elsewhere is not None
    for mine, theirs in ((0, 7), (1, 2)):
        assert torch.equal(some.train.of(mine)[0], clients.train.of(theirs)[0])
        assert torch.equal(some.elsewhere.of(mine)[0], clients.elsewhere.of(theirs)[0])
    assert some.train.groups is not None and some.train.groups.sum() == 8
