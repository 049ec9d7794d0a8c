import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated import Krum, Mean, Median, TrimmedMean
from holdfast.federated.attacks import (
    Mimic,
    OptimisedInnerProduct,
    OptimisedLittleIsEnough,
    most_harmful_factor,
)
from tests.federated.aggregation.rounds import random_round
from tests.federated.byzantine import published

M, F = 13, 4


def send(attack, updates, malicious, defence=None):
    return attack.send(updates, malicious, clients=torch.arange(len(updates)), seed=0, number=0, defence=defence)


@pytest.fixture
def mixed():
    """Updates of a round whose mean is not zero, attackers in between."""
    malicious = torch.zeros(M, dtype=torch.bool)
    malicious[[1, 4, 5, 11]] = True
    return random_round(0, M, 30) + 0.5, malicious


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Median(), lambda byzfl: byzfl.Median()),
        (lambda updates: TrimmedMean()(updates, f=F), lambda byzfl: byzfl.TrMean(F)),
        (Mean(), lambda byzfl: byzfl.Average()),
        (lambda updates: Krum()(updates, f=F - 1), lambda byzfl: byzfl.Krum(F)),
    ],
    ids=["median", "trimmed-mean", "mean", "krum"],
)
@pytest.mark.parametrize(
    ("attack", "published_name"),
    [
        (OptimisedLittleIsEnough(), "Optimal_ALittleIsEnough"),
        (OptimisedInnerProduct(), "Optimal_InnerProductManipulation"),
    ],
)
def test_the_search_sends_what_byzfls_sends(mixed, attack, published_name, ours, theirs):
    updates, malicious = mixed
    byzfl = published()
    expected = getattr(byzfl, published_name)(agg=theirs(byzfl), pre_agg_list=[], f=F)(updates[~malicious].numpy())
    sent = send(attack, updates, malicious, ours)
    np.testing.assert_allclose(sent[malicious][0].numpy(), expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(sent[malicious], sent[malicious][:1].expand(F, -1))
    assert torch.equal(sent[~malicious], updates[~malicious])


def test_it_does_more_harm_than_any_factor_of_a_fixed_attack_nearby(mixed):
    updates, malicious = mixed
    attack = OptimisedInnerProduct()
    benign = updates[~malicious].mean(0)

    def harm(sent):
        return float((TrimmedMean()(sent, f=F) - benign).norm())

    best = harm(send(attack, updates, malicious, lambda sent: TrimmedMean()(sent, f=F)))
    for factor in np.linspace(0, 3, 7):
        trial = updates.clone()
        trial[malicious] = attack.vector(updates[~malicious], float(factor))
        assert best >= harm(trial) - 1e-9


def test_the_search_finds_a_peak_and_uses_no_more_trials_than_it_may():
    tried = []

    def harm(factor):
        tried.append(factor)
        return -abs(factor - 37.0)

    assert abs(most_harmful_factor(harm, 40) - 37.0) < 7  # where the doubling steps of 10, 30, 70 find 30
    assert len(tried) == 40
    assert most_harmful_factor(lambda factor: -factor, 5) == 0.0
    with pytest.raises(ConfigError, match="at least 1"):
        OptimisedInnerProduct(evaluations=0)


@pytest.mark.parametrize("position", [0, 3, 8])
def test_mimics_send_what_the_client_at_a_position_sends_as_byzfls_do(mixed, position):
    updates, malicious = mixed
    expected = published().Mimic(position)(updates[~malicious].numpy())
    assert np.array_equal(send(Mimic(position), updates, malicious)[malicious][0].numpy(), expected)


def test_by_default_mimics_choose_the_client_that_is_farthest_out_along_the_largest_spread(mixed):
    updates, malicious = mixed
    updates = updates.clone()
    odd = int((~malicious).nonzero()[5])
    updates[odd] += 50.0
    assert torch.equal(send(Mimic(), updates, malicious)[malicious][0], updates[odd])
    benign = updates[~malicious] - updates[~malicious].mean(0)
    direction = torch.linalg.svd(benign).Vh[0]
    assert int((benign @ direction).abs().argmax()) == 5


def test_a_round_of_attackers_only_is_no_trouble():
    updates = random_round(0, 4, 30)
    everybody = torch.ones(4, dtype=torch.bool)
    for attack in (Mimic(), OptimisedInnerProduct(), OptimisedLittleIsEnough()):
        assert send(attack, updates, everybody).shape == updates.shape
        assert torch.equal(send(attack, updates, ~everybody), updates)
