import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.training.plan import Plan, merge


def test_masks_are_anded_and_copies_multiplied():
    first = Plan(copies=torch.tensor([True, True, False, True]))
    second = Plan(copies=torch.tensor([1, 3, 5, 0]))
    assert merge([("a", first), ("b", second)]).copies.tolist() == [1, 3, 0, 0]


def test_sampling_weights_multiply():
    parts = [("a", Plan(sample_weight=torch.tensor([1.0, 2.0]))), ("b", Plan(sample_weight=torch.tensor([3.0, 0.5])))]
    assert merge(parts).sample_weight.tolist() == [3.0, 1.0]


def test_loss_weights_have_mean_one_over_the_active_examples():
    parts = [("a", Plan(loss_weight=torch.tensor([2.0, 4.0, 100.0]))), ("b", Plan(copies=torch.tensor([1, 1, 0])))]
    merged = merge(parts)
    assert merged.loss_weight[merged.active].mean() == 1
    assert merged.loss_weight[1] / merged.loss_weight[0] == 2


def test_loss_weights_have_mean_one_over_what_an_epoch_visits():
    weights = Plan(loss_weight=torch.tensor([1.0, 5.0, 1.0, 1.0]))
    copies = torch.tensor([1, 9, 1, 1])
    repeated = merge([("a", Plan(copies=copies)), ("b", weights)]).loss_weight
    assert (repeated * copies).sum() / copies.sum() == pytest.approx(1)
    drawn = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    sampled = merge([("a", Plan(sample_weight=drawn)), ("b", weights)]).loss_weight
    assert (sampled * drawn).sum() == pytest.approx(1)


def test_the_last_explicit_batches_win_and_keep_their_weights():
    one = Plan(batches=torch.tensor([[0, 1]]), batch_weight=torch.tensor([[1.0, 1.0]]))
    two = Plan(batches=torch.tensor([[1, 2]]), batch_weight=torch.tensor([[0.5, 1.5]]))
    merged = merge([("a", one), ("b", two)])
    assert merged.batches.tolist() == [[1, 2]]
    assert merged.batch_weight.tolist() == [[0.5, 1.5]]


def test_sampling_weights_before_explicit_batches_are_theirs_to_use():
    merged = merge([("a", Plan(sample_weight=torch.ones(3))), ("b", Plan(batches=torch.tensor([[0, 1]])))])
    assert merged.sample_weight is None


def test_sampling_weights_after_explicit_batches_are_refused():
    with pytest.raises(ConfigError, match="put balance before crest"):
        merge([("crest", Plan(batches=torch.tensor([[0, 1]]))), ("balance", Plan(sample_weight=torch.ones(3)))])


def test_explicit_batches_of_dropped_examples_are_refused():
    with pytest.raises(ConfigError, match="contain dropped examples"):
        merge([("a", Plan(copies=torch.tensor([0, 1, 1]))), ("b", Plan(batches=torch.tensor([[0, 1]])))])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([Plan(copies=torch.zeros(3))], "no example is left"),
        ([Plan(copies=torch.tensor([1, 0])), Plan(sample_weight=torch.tensor([0.0, 1.0]))], "sampling weight 0"),
        ([Plan(loss_weight=torch.zeros(2))], "loss weight 0"),
    ],
)
def test_a_plan_that_leaves_nothing_is_refused(parts, message):
    with pytest.raises(ConfigError, match=message):
        merge([(f"p{i}", part) for i, part in enumerate(parts)])


@pytest.mark.parametrize("bad", [torch.tensor([1.0, float("nan")]), torch.tensor([-1.0, 1.0]), torch.ones(2, 2)])
def test_weights_that_are_no_weights_are_refused(bad):
    with pytest.raises(ConfigError):
        Plan(sample_weight=bad)


def test_batch_weights_that_are_no_numbers_are_refused():
    with pytest.raises(ConfigError, match="non-finite"):
        Plan(batches=torch.tensor([[0, 1]]), batch_weight=torch.tensor([[1.0, float("nan")]]))
    with pytest.raises(ConfigError, match="same shape"):
        Plan(batch_weight=torch.ones(1, 2))


def test_inputs_of_mini_batches_come_and_go_with_them():
    batches = torch.tensor([[0, 1], [2, 3]])
    mask = Plan(batches=batches, batch_inputs=torch.randn(2, 2, 5))
    assert torch.equal(
        merge([("crest", mask), ("weights", Plan(loss_weight=torch.ones(4)))]).batch_inputs[1, 0],
        mask.batch_inputs[1, 0],
    )
    assert merge([("crest", mask), ("other", Plan(batches=batches))]).batch_inputs is None
    for wrong in ({"batch_inputs": torch.ones(2, 2)}, {"batches": batches, "batch_inputs": torch.ones(2, 3, 5)}):
        with pytest.raises(ConfigError, match="batch_inputs of a plan need batches"):
            Plan(**wrong)


def test_plans_are_compared_by_what_they_say():
    assert Plan(copies=torch.tensor([1, 0])).same_as(Plan(copies=torch.tensor([True, False])))
    assert not Plan(copies=torch.tensor([1, 0])).same_as(Plan())
    assert not Plan(copies=torch.tensor([1, 0])).same_as(Plan(copies=torch.tensor([1, 1])))


def test_shares_are_how_often_each_part_comes():
    parts = torch.tensor([0, 0, 0, 1])
    assert Plan().shares(parts).tolist() == [0.75, 0.25]
    assert Plan(copies=torch.tensor([1, 0, 0, 3])).shares(parts).tolist() == [0.25, 0.75]
    weighed = Plan(copies=torch.tensor([1, 1, 0, 1]), sample_weight=torch.tensor([1.0, 1.0, 9.0, 2.0]))
    assert weighed.shares(parts).tolist() == [0.5, 0.5]
    assert Plan(batches=torch.tensor([[0, 3], [3, 3]])).shares(parts).tolist() == [0.25, 0.75]


def test_the_last_groups_win():
    first, second = Plan(groups=torch.tensor([0, 1])), Plan(groups=torch.tensor([1, 1]))
    assert merge([("a", first), ("b", Plan()), ("c", second)]).groups.tolist() == [1, 1]
    assert merge([("a", first), ("b", Plan())]).groups.tolist() == [0, 1]
