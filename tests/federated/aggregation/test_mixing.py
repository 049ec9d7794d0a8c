"""Steps before a rule, against the slow obvious way and byzfl."""

import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import (
    Bucketing,
    ClientMomentum,
    Median,
    NearestNeighbourMixing,
    RoundFacts,
    TrimmedMean,
    buckets,
    build_aggregator,
    nearest_neighbour_mixing,
)
from tests.federated.aggregation.rounds import random_round
from tests.federated.byzantine import published


@pytest.mark.parametrize(("m", "f"), [(5, 1), (11, 4), (20, 0), (20, 7)])
def test_nearest_neighbour_mixing_is_the_mean_of_the_nearest_and_that_of_byzfl(m, f):
    updates = random_round(m, m, 30)
    slow = torch.stack(
        [updates[(updates - own).square().sum(1).argsort(stable=True)[: m - f]].mean(0) for own in updates]
    )
    torch.testing.assert_close(nearest_neighbour_mixing(updates, f), slow, rtol=0, atol=1e-12)
    theirs = published().NNM(f)(updates.numpy())
    torch.testing.assert_close(nearest_neighbour_mixing(updates, f), torch.as_tensor(theirs), rtol=0, atol=1e-12)
    chained = (NearestNeighbourMixing() >> TrimmedMean())(updates, f=f)
    torch.testing.assert_close(chained, torch.as_tensor(published().TrMean(f)(theirs)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("m", "size"), [(6, 2), (7, 2), (7, 3), (5, 1), (4, 9)])
def test_buckets_are_means_of_groups_in_the_given_order_as_in_byzfl(m, size, monkeypatch):
    updates = random_round(0, m, 12)
    order = torch.randperm(m, generator=torch.Generator().manual_seed(m))
    byzfl = published()
    monkeypatch.setattr(np.random, "permutation", lambda vectors: vectors[order.numpy()])
    theirs = byzfl.Bucketing(size)(updates.numpy())
    torch.testing.assert_close(buckets(updates, order, size), torch.as_tensor(theirs), rtol=0, atol=1e-12)
    assert Bucketing(size).remaining(m) == len(theirs)


def test_buckets_are_drawn_anew_in_every_round_and_the_same_again_for_a_seed():
    updates = random_round(0, 20, 12)
    step = Bucketing(4) >> Median()
    drawn = [
        step.step(updates, RoundFacts(number=number, seed=seed), {})[0] for number, seed in ((0, 0), (1, 0), (0, 1))
    ]
    assert not torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[0], step.step(updates, RoundFacts(), {})[0])


def test_momentum_is_kept_for_each_client_and_begins_with_its_first_update():
    rule = ClientMomentum(beta=0.75)
    memory = rule.begin(5, 3)
    sent = {client: [] for client in range(5)}
    for number, clients in enumerate([[0, 3], [3, 4], [0, 3, 4], [1]]):
        updates = random_round(number, len(clients), 3)
        ready, memory = rule.transform(updates, RoundFacts(clients=torch.tensor(clients)), memory)
        for row, client, update in zip(ready, clients, updates, strict=True):
            sent[client].append(update)
            expected = sent[client][0]
            for later in sent[client][1:]:
                expected = 0.75 * expected + 0.25 * later
            torch.testing.assert_close(row, expected, rtol=0, atol=1e-14)
    assert memory["momentum/begun"].tolist() == [True, True, False, True, True]


def test_a_step_leaves_its_memory_alone_and_returns_a_new_one():
    rule = build_aggregator("momentum+centred-clipping")
    memory = rule.begin(4, 3)
    before = {name: value.clone() for name, value in memory.items()}
    _, after = rule.step(random_round(0, 2, 3), RoundFacts(clients=torch.tensor([1, 2])), memory)
    assert all(torch.equal(memory[name], value) for name, value in before.items())
    assert set(after) == set(memory) and not torch.equal(after["momentum/rows"], before["momentum/rows"].double())


def test_what_needs_clients_or_losses_cannot_stand_behind_buckets():
    for joined in ("bucketing+k-loss", "bucketing+momentum"):
        with pytest.raises(ConfigError, match="no single client sent"):
            build_aggregator(joined).check(10, 1)
    with pytest.raises(ConfigError, match="named twice"):
        build_aggregator("momentum+momentum+median")
    assert not build_aggregator("bucketing").averages and build_aggregator("nnm").averages
    assert build_aggregator("bucketing+median").stands(10) == 2


@pytest.mark.parametrize(
    "options", [("bucketing", {"size": 0}), ("momentum", {"beta": 1.0}), ("centred-clipping", {"radius": 0.0}),
                ("centred-clipping", {"iterations": 0})],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigError, match="give"):
        build_aggregator(options[0], dict([options]))
