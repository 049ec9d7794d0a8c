"""How many malicious clients a server expects, and what follows before the first round."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import comb
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.federated import (
    Aggregator,
    Bulyan,
    Expectation,
    Gaussian,
    KLoss,
    KNorm,
    Krum,
    Mean,
    Median,
    MultiKrum,
    NearestNeighbourMixing,
    Rounds,
    Threat,
    TrimmedMean,
    federate,
)
from holdfast.federated.engine.selection import select
from holdfast.federated.expectation import hypergeometric_quantile
from tests.federated.toy import linear, toy_clients

EVERYBODY = Rounds(rounds=3, cohort=8, batch_size=8, evaluate_every=0, executor="serial")


def expected(clients=50, attackers=None, expectation=None, **settings):
    return (expectation or Expectation()).resolve(clients, replace(EVERYBODY, **settings), attackers)


def exact_tail(clients, malicious, cohort, f):
    """The chance of more than f, with whole numbers."""
    ways = sum(
        comb(malicious, k) * comb(clients - malicious, cohort - k) for k in range(f + 1, min(cohort, malicious) + 1)
    )
    return Fraction(ways, comb(clients, cohort))


@given(st.data())
def test_the_quantile_is_the_smallest_number_that_is_hardly_ever_exceeded(data):
    clients = data.draw(st.integers(1, 120))
    malicious, cohort = data.draw(st.integers(0, clients)), data.draw(st.integers(1, clients))
    tail = data.draw(st.floats(1e-9, 0.3))
    f = hypergeometric_quantile(clients, malicious, cohort, tail)
    assert exact_tail(clients, malicious, cohort, f) <= Fraction(tail) * Fraction(1 + 1e-9)
    assert f == 0 or exact_tail(clients, malicious, cohort, f - 1) > Fraction(tail) * Fraction(1 - 1e-9)


def test_if_all_take_part_the_number_is_exact():
    for malicious in range(31):
        assert hypergeometric_quantile(30, malicious, 30, 1e-6) == malicious


def test_a_federation_of_a_million_is_no_trouble():
    assert hypergeometric_quantile(10**6, 10**5, 100, 1e-5) == 25  # as the binomial distribution has it


@pytest.mark.parametrize("sampling", ["uniform", "examples"])
def test_in_a_thousand_simulated_runs_at_most_a_few_exceed_it(sampling):
    """Draws of the engine itself; by examples too, since who is malicious has nothing to do with their number."""
    clients, malicious, rounds = 40, 8, 20
    sizes = torch.arange(1, clients + 1)
    settings = Rounds(rounds=rounds, cohort=10, sampling=sampling)
    f = expected(clients, malicious, Expectation(expect_risk=0.02), cohort=10, rounds=rounds).f
    exceeded = 0
    for seed in range(500):
        bad = torch.zeros(clients, dtype=torch.bool)
        bad[torch.randperm(clients, generator=torch.Generator().manual_seed(seed))[:malicious]] = True
        seeded = replace(settings, seed=seed)
        exceeded += any(int(bad[select(seeded, number, sizes, bad)].sum()) > f for number in range(rounds))
    assert exceeded <= 0.02 * 500
    assert f > 10 * malicious // clients


def test_shares_and_numbers_and_where_they_come_from():
    assert expected(expectation=Expectation(0.2)).malicious == 10
    assert expected(clients=52, expectation=Expectation(0.2)).malicious == 11  # rounded up
    assert expected(expectation=Expectation(7)).malicious == 7
    assert (expected(attackers=4).malicious, expected(attackers=4).source) == (4, "attack")
    assert expected(attackers=4, expectation=Expectation(0)).malicious == 0
    assert (expected().malicious, expected().f, expected().source) == (None, 0, "nobody")
    assert expected(attackers=10, expectation=Expectation(expect_by="mean"), cohort=14).f == 14 * 10 // 50
    assert expected(attackers=10, cohort=14, sampling="stratified").f == 14 * 10 // 50
    assert expected(attackers=10, cohort=14).f > 14 * 10 // 50


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_an_expectation_that_is_neither_a_share_nor_a_number_is_refused(value):
    with pytest.raises(ConfigError, match="a share from 0 to below 1, or a whole number"):
        Expectation(value)
    with pytest.raises(ConfigError, match="expect fewer"):
        Expectation(51).resolve(50, EVERYBODY, None)
    with pytest.raises(ConfigError, match="share of runs"):
        Expectation(expect_risk=1.0)


NEED = [TrimmedMean(), Krum(), MultiKrum(), KNorm(), KLoss(), Bulyan(), NearestNeighbourMixing() >> Median()]


@pytest.mark.parametrize("rule", NEED, ids=lambda rule: rule.label)
def test_a_rule_that_must_be_told_is_refused_where_nobody_said_anything_and_an_explicit_0_is_accepted(rule):
    with pytest.raises(ConfigError, match=f"{rule.label.replace('+', '.')} must know how many malicious"):
        federate(toy_clients(), linear(), EVERYBODY, aggregator=rule)
    outcome = federate(toy_clients(), linear(), EVERYBODY, aggregator=rule, expect_malicious=0)
    assert outcome.expected.sentence() == "No client was expected to be malicious, as was stated."


@pytest.mark.parametrize("rule", [Mean(), Median()])
def test_other_rules_need_no_word(rule):
    outcome = federate(toy_clients(), linear(), EVERYBODY, aggregator=rule)
    assert outcome.expected.sentence() == "Nobody said how many malicious clients to expect."


def test_a_rule_that_cannot_bear_it_is_refused_and_the_smallest_cohort_that_works_is_named():
    few = expected(expectation=Expectation(0.2), cohort=10, rounds=20)
    with pytest.raises(
        ConfigError, match=r"median withstands 4 malicious updates among 10.*may hold 7; use --cohort (\d+)"
    ):
        few.check(Median())
    works = few.bearable_cohort(Median())
    assert replace(few, cohort=works).check(Median()) == []
    for cohort in range(10, works):
        with pytest.raises(ConfigError, match="use --cohort"):
            replace(few, cohort=cohort).check(Median())
    with pytest.raises(ConfigError, match="no cohort is large enough"):
        expected(expectation=Expectation(0.5), cohort=10).check(Median())
    assert "mean promises nothing" in few.check(Mean())[0] and not expected(attackers=10).check(Mean())
    with pytest.raises(ConfigError, match="k-loss would discard all"):
        expected(expectation=Expectation(0.9), cohort=10).check(KLoss())


def test_the_way_of_the_documents_refuses_nothing_and_expects_the_rounded_mean():
    many = expected(attackers=40, expectation=Expectation(expect_by="mean"), cohort=10)
    assert many.f == 8
    assert "krum" in many.check(Krum())[0]
    assert expected(expectation=Expectation(expect_by="mean")).check(Krum()) == []


def test_a_number_that_is_expected_reaches_the_rule():
    attack = Threat(Gaussian(1e20), 0.25)
    told, untold = (
        federate(toy_clients(), linear(), EVERYBODY, aggregator=TrimmedMean(), threat=attack, expect_malicious=expect)
        for expect in (0.25, 0)
    )
    assert told.divergence is None and told.weights.abs().max() < 10
    assert untold.divergence is not None and "withstands the attackers" in untold.divergence.sentence()


def test_a_shared_model_whose_loss_explodes_is_said_to_have_diverged_and_a_bad_one_is_not():
    wild = replace(EVERYBODY, learning_rate=1e4, rounds=8, evaluate_every=2)
    outcome = federate(toy_clients(), linear(), wild)
    assert outcome.diverged_at is None and outcome.divergence is not None
    assert outcome.divergence.since == 2 and "lower the learning rate" in outcome.divergence.sentence()
    assert federate(toy_clients(), linear(), replace(EVERYBODY, learning_rate=1e-6)).divergence is None
    # An initial model that is as bad as that is no divergence.
    bad = linear()
    bad.weight.data *= 1e4
    assert federate(toy_clients(), bad, replace(EVERYBODY, learning_rate=1e-6)).divergence is None


@dataclass(frozen=True)
class Diary(Aggregator):
    """A mean that writes down what it is told, and remembers how often it was asked."""

    name: ClassVar[str] = "diary"
    told: list = field(default_factory=list)

    def __call__(self, updates, *, f=0, losses=None):
        return updates.mean(0)

    def begin(self, clients, parameters):
        return {"asked": torch.zeros(clients, dtype=torch.int64)}

    def step(self, updates, facts, memory):
        asked = memory["asked"].clone()
        asked[facts.clients] += 1
        self.told.append((facts.number, facts.seed, facts.f, facts.clients.tolist(), asked.tolist()))
        return self(updates), {"asked": asked}


def test_a_rule_is_told_of_every_round_and_given_back_what_it_remembers():
    rule, rounds = Diary(), replace(EVERYBODY, cohort=3, rounds=5, seed=7)
    outcome = federate(toy_clients(), linear(), rounds, aggregator=rule, threat=Threat(Gaussian(), 0.25))
    assert [(number, seed, f) for number, seed, f, _, _ in rule.told] == [(n, 7, 2) for n in range(5)]
    sizes, nobody = toy_clients().train.counts, torch.zeros(8, dtype=torch.bool)
    assert [clients for _, _, _, clients, _ in rule.told] == [
        select(rounds, number, sizes, nobody).tolist() for number in range(5)
    ]
    assert rule.told[-1][-1] == outcome.joined.tolist()
