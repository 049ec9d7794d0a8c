import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.training.plan import Plan
from holdfast.training.sampling_order import SamplingOrder, stratified_pass


def test_a_pass_visits_every_example_once():
    draws = SamplingOrder(Plan(), 50, seed=0, since=0)
    for number in range(3):
        assert sorted(draws.take(50 * number, 50).tolist()) == list(range(50))
    assert draws.take(0, 50).tolist() != draws.take(50, 50).tolist()


def test_a_pass_visits_an_example_as_often_as_it_has_copies():
    draws = SamplingOrder(Plan(copies=torch.tensor([0, 1, 3])), 3, seed=0, since=0)
    assert sorted(draws.take(0, 4).tolist()) == [1, 2, 2, 2]


def test_what_is_drawn_does_not_depend_on_how_it_is_asked_for():
    whole = SamplingOrder(Plan(), 13, seed=4, since=7).take(0, 60)
    piecewise = SamplingOrder(Plan(), 13, seed=4, since=7)
    assert torch.equal(whole, torch.cat([piecewise.take(start, 5) for start in range(0, 60, 5)]))
    assert torch.equal(whole[40:], SamplingOrder(Plan(), 13, seed=4, since=7).take(40, 20))


def test_a_small_set_is_cycled_with_a_fresh_shuffle_each_time():
    draws = SamplingOrder(Plan(copies=torch.tensor([1, 1, 1, 0, 0])), 5, seed=0, since=0).take(0, 30).reshape(10, 3)
    assert all(sorted(row.tolist()) == [0, 1, 2] for row in draws)
    assert len({tuple(row.tolist()) for row in draws}) > 1


def test_weighted_draws_have_the_wanted_frequencies():
    weight = torch.tensor([0.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    n = 80_000
    draws = SamplingOrder(Plan(sample_weight=weight), 4, seed=3, since=0).take(0, n)
    counts = torch.bincount(draws, minlength=4)
    expected = n * weight / weight.sum()
    chi_square = ((counts - expected)[1:] ** 2 / expected[1:]).sum()
    assert counts[0] == 0
    assert chi_square < 13.8  # 0.1 % quantile at 2 degrees of freedom


def test_weights_apply_to_the_active_set_only():
    plan = Plan(copies=torch.tensor([1, 0, 1]), sample_weight=torch.tensor([1.0, 100.0, 1.0]))
    assert set(SamplingOrder(plan, 3, seed=0, since=0).take(0, 200).tolist()) == {0, 2}


def test_explicit_batches_are_drawn_by_row():
    plan = Plan(batches=torch.tensor([[0, 1], [2, 3], [4, 5]]))
    assert set(SamplingOrder(plan, 6, seed=0, since=0).take(0, 60).tolist()) == {0, 1, 2}


def test_a_later_plan_has_a_stream_of_its_own():
    assert not torch.equal(
        SamplingOrder(Plan(), 50, 0, since=0).take(0, 50), SamplingOrder(Plan(), 50, 0, since=10).take(0, 50)
    )


def laid_out(strata, seed):
    """Places by a loop: a shuffle of each stratum, its j-th of k at (j + u) / k."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(strata), generator=generator).tolist()
    offsets = torch.rand(int(strata.max()) + 1, generator=generator, dtype=torch.float64).tolist()
    placed = []
    for stratum in sorted(set(strata.tolist())):
        members = [place for place in drawn if int(strata[place]) == stratum]
        placed += [((j + offsets[stratum]) / len(members), stratum, place) for j, place in enumerate(members)]
    return [place for _, _, place in sorted(placed)]


labels_of_any_kind = st.lists(st.integers(0, 5), min_size=1, max_size=120).map(torch.tensor)


@settings(max_examples=60, deadline=None)
@given(labels_of_any_kind, st.integers(0, 2**31), st.integers(1, 40))
def test_a_stratified_pass_is_a_shuffle_with_every_stratum_in_proportion_in_every_stretch(strata, seed, size):
    order = stratified_pass(strata, None, torch.Generator().manual_seed(seed))
    assert order.tolist() == laid_out(strata, seed)
    assert sorted(order.tolist()) == list(range(len(strata)))
    counts, n = torch.bincount(strata).double(), len(strata)
    some = min(size, n)
    present = int(counts.count_nonzero())
    for start in range(n - some + 1):
        here = torch.bincount(strata[order[start : start + some]], minlength=len(counts)).double()
        assert bool(((here - some * counts / n).abs() < 1 + present * counts / n).all())


def test_classes_of_equal_size_take_turns():
    order = stratified_pass(torch.arange(60) % 3, None, torch.Generator().manual_seed(1)) % 3
    assert len({tuple(three.tolist()) for three in order.reshape(-1, 3)}) == 1
    assert sorted(order[:3].tolist()) == [0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(labels_of_any_kind, st.integers(0, 2**31), st.randoms(use_true_random=False))
def test_weighted_strata_draw_each_example_as_often_as_is_its_due(strata, seed, dice):
    weights = torch.tensor([dice.choice([0.0, 0.5, 1.0, 3.0]) for _ in strata], dtype=torch.float64)
    weights[0] = 1.0
    order = stratified_pass(strata, weights, torch.Generator().manual_seed(seed))
    due = weights * len(strata) / weights.sum()
    drawn = torch.bincount(order, minlength=len(strata))
    assert bool(((drawn - due).abs() < 1 + 1e-9).all())
    per_stratum = torch.bincount(strata[order], minlength=6) - torch.bincount(strata, due, minlength=6)
    assert bool((per_stratum.abs() < 1 + 1e-9).all())


def test_a_plan_with_strata_goes_on_without_end_and_without_what_was_dropped():
    labels, kept = torch.arange(30) % 5, torch.arange(30) >= 10
    order = SamplingOrder(Plan(strata=labels, copies=kept), 30, 0, 0)
    whole = order.take(0, 60)
    assert sorted(whole[:20].tolist()) == sorted(whole[20:40].tolist()) == list(range(10, 30))
    assert not torch.equal(whole[:20], whole[20:40])
    assert torch.equal(SamplingOrder(Plan(strata=labels, copies=kept), 30, 0, 0).take(13, 30), whole[13:43])


def test_mini_batches_in_a_given_order_come_in_that_order():
    batches = torch.tensor([[0, 1], [2, 3], [4, 5]])
    plan = Plan(batches=batches, batch_order=torch.tensor([2, 0]))
    assert SamplingOrder(plan, 6, 0, 0).take(1, 4).tolist() == [0, 2, 0, 2]
    with pytest.raises(ConfigError, match="names some of them by their numbers"):
        Plan(batches=batches, batch_order=torch.tensor([3]))
    with pytest.raises(ConfigError, match="batch_order of a plan needs batches"):
        Plan(batch_order=torch.tensor([0]))
