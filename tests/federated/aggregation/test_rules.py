"""What holds for all rules or for several of them (spec, checks A5, A6, A9, A10)."""

import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.federated.aggregation import (
    AGGREGATORS,
    Aggregator,
    Clipping,
    FedMgda,
    GeometricMedian,
    KNorm,
    Krum,
    Mean,
    Median,
    MultiKrum,
    QFairMean,
    TiltedMean,
    TrimmedMean,
    mean,
)
from tests.federated.aggregation.rounds import random_losses, random_round

EVERY: list[Aggregator] = [rule() for rule in AGGREGATORS.values()]


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rule_gives_one_vector_of_the_same_dtype_and_leaves_its_input_alone(
    rule: Aggregator, dtype: torch.dtype
) -> None:
    updates = random_round(0, 9, 30, dtype)
    before = updates.clone()
    step = rule(updates, f=2, losses=random_losses(0, 9))
    assert step.shape == (30,)
    assert step.dtype == dtype
    step.zero_()
    assert torch.equal(updates, before)


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)
def test_a_rule_answers_many_columns_as_it_answers_few(rule: Aggregator) -> None:
    """Blocks of columns: repeating all coordinates 3,000 times scales every distance alike."""
    updates = random_round(1, 9, 3)
    losses = random_losses(1, 9)
    if rule.name == "q-fair":
        losses = torch.ones(9)
    wide = rule(updates.repeat(1, 3000), f=2, losses=losses).reshape(3000, 3)
    if rule.name == "fedmgda":
        wide = wide * 3000**0.5
    if rule.name == "q-fair":
        wide = wide * (0.1 + 3000 * updates.square().sum(1).mean()) / (0.1 + updates.square().sum(1).mean())
    torch.testing.assert_close(wide, rule(updates, f=2, losses=losses).expand(3000, 3))


@pytest.mark.parametrize(
    "rule",
    [TiltedMean(0.0), QFairMean(0.0), KNorm(), MultiKrum(), TrimmedMean()],
    ids=lambda rule: rule.name,
)
def test_rules_that_become_the_mean_do_so_exactly_without_attackers(rule: Aggregator) -> None:
    updates = random_round(2, 8, 50, torch.float32)
    step = rule(updates, f=0, losses=random_losses(2, 8))
    torch.testing.assert_close(step, mean(updates), rtol=1e-6, atol=0)
    if rule.name in ("k-norm", "multi-krum", "trimmed-mean"):
        assert torch.equal(step, mean(updates))


def test_clipping_of_equal_norms_and_fedmgda_of_equal_unit_updates_are_the_mean() -> None:
    updates = random_round(3, 6, 40)
    flipped = updates[:1] * torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    assert torch.equal(Clipping()(flipped), mean(flipped))
    same = (updates[:1] / updates[:1].norm()).repeat(5, 1)
    torch.testing.assert_close(FedMgda(0.5)(same), mean(same), rtol=0, atol=1e-12)


ORDERLESS = [Mean(), Median(), TrimmedMean(), GeometricMedian(), Krum(), MultiKrum()]


@pytest.mark.parametrize("rule", ORDERLESS, ids=lambda rule: rule.name)
def test_the_order_of_clients_does_not_matter_and_a_common_shift_passes_through(rule: Aggregator) -> None:
    updates = random_round(4, 11, 60)
    shift = torch.randn(60, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    step = rule(updates, f=3)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(6))
    torch.testing.assert_close(rule(updates[order], f=3), step, rtol=0, atol=1e-10)
    torch.testing.assert_close(rule(updates + shift, f=3), step + shift, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rule", [Clipping(), KNorm()], ids=lambda rule: rule.name)
def test_rules_about_norms_feel_a_common_shift(rule: Aggregator) -> None:
    updates = random_round(4, 11, 60)
    shift = 3 * torch.randn(60, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    assert float((rule(updates + shift, f=3) - rule(updates, f=3) - shift).norm()) > 0.01


@pytest.mark.parametrize("m", [9, 10])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, 1e30])
def test_a_minority_cannot_take_the_median_out_of_the_benign_range_and_one_moves_the_mean(m: int, value: float) -> None:
    benign = random_round(7, m - 4, 30, torch.float32)
    updates = torch.cat([benign, torch.full((4, 30), value)])
    found = Median()(updates)
    assert bool((found >= benign.min(0).values).all())
    assert bool((found <= benign.max(0).values).all())
    assert not bool((mean(updates[: m - 3]) <= benign.max(0).values).all()) or value < 0
    assert not bool((mean(updates[: m - 3]) >= benign.min(0).values).all()) or value > 0


def test_clipping_bounds_every_contribution_so_a_larger_boost_changes_nothing() -> None:
    benign = random_round(8, 7, 40)
    attackers = random_round(9, 3, 40)
    ten, million = (Clipping()(torch.cat([benign, boost * attackers])) for boost in (10.0, 1e6))
    torch.testing.assert_close(ten, million, rtol=0, atol=1e-12)
    updates = torch.cat([benign, 10 * attackers])
    limit = float(updates.norm(dim=1).quantile(0.5))
    assert float(Clipping().prepare(updates).norm(dim=1).max()) <= limit * (1 + 1e-12)
    assert float(ten.norm()) <= limit


def test_clipping_goes_before_another_rule() -> None:
    updates = random_round(10, 9, 20)
    updates[0] *= 100
    chained = (Clipping() >> MultiKrum())(updates, f=1)
    torch.testing.assert_close(chained, MultiKrum()(Clipping().prepare(updates), f=1))
    assert float((chained - MultiKrum()(updates, f=1)).norm()) > 1e-3


def test_term_weights_stay_finite_and_follow_the_losses() -> None:
    losses = torch.tensor([0.0, 5e3, 1e4])
    updates = random_round(11, 3, 5)
    torch.testing.assert_close(TiltedMean(1.0)(updates, losses=losses), updates[2])
    small = [float((TiltedMean(t)(updates, losses=losses / 1e4) - mean(updates)).norm()) for t in (1e-3, 5e-4)]
    assert small[0] / small[1] == pytest.approx(2, rel=1e-3)


def test_coordinates_are_those_of_the_slow_obvious_rules() -> None:
    for m in (1, 2, 5, 8):
        updates = random_round(12, m, 17)
        torch.testing.assert_close(Median()(updates), updates.quantile(0.5, dim=0))
        for f in range((m + 1) // 2):
            kept = torch.stack([column.sort().values[f : m - f].mean() for column in updates.T])
            torch.testing.assert_close(TrimmedMean()(updates, f=f), kept)


def test_losses_that_are_missing_or_not_finite_are_refused() -> None:
    updates = random_round(13, 3, 5)
    for losses in (None, torch.ones(2), torch.tensor([1.0, torch.nan, 2.0])):
        with pytest.raises(DataError, match="one finite loss for each of 3 updates"):
            TiltedMean()(updates, losses=losses)


class TestBreakdown:
    @pytest.mark.parametrize("name", ["median", "geometric-median", "clipping", "krum", "multi-krum"])
    def test_a_rule_that_promises_nothing_says_so_and_one_that_holds_is_silent(self, name: str) -> None:
        rule = AGGREGATORS[name]()
        assert rule.check(10, 3) == []
        [sentence] = rule.check(10, 5)
        assert "5 of 10" in sentence

    @pytest.mark.parametrize(
        ("name", "f"), [("trimmed-mean", 5), ("k-norm", 10), ("k-loss", 10), ("multi-krum", 10), ("mean", 11)]
    )
    def test_a_rule_that_is_not_defined_is_refused(self, name: str, f: int) -> None:
        AGGREGATORS[name]().check(10, 2)
        with pytest.raises(ConfigError):
            AGGREGATORS[name]().check(10, f)

    def test_krum_without_neighbours_says_what_it_does_instead(self) -> None:
        updates = random_round(14, 10, 20)
        assert "one neighbour counts" in Krum().check(10, 8)[0]
        assert "first update wins" in Krum(reference=True).check(10, 8)[0]
        assert torch.equal(Krum(reference=True)(updates, f=8), updates[0])
        closest = torch.cdist(updates, updates).fill_diagonal_(torch.inf).min(1).values.argmin()
        assert torch.equal(Krum()(updates, f=8), updates[closest])

    def test_a_trimmed_mean_of_nothing_is_refused_when_called(self) -> None:
        with pytest.raises(ConfigError, match="can't drop 3 on each side"):
            TrimmedMean()(random_round(15, 6, 4), f=3)
