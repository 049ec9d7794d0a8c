import torch

from holdfast.training.plan import Plan
from holdfast.training.sampling_order import SamplingOrder


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
