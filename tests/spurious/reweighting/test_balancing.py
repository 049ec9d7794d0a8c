import pytest
import torch

from holdfast.data import Examples
from holdfast.errors import DataError
from holdfast.spurious import ClassBalanced, GroupBalanced, GroupSubsampled, balance_weights, balanced_subset
from holdfast.training import Curator
from tests.training.policies import Growing
from tests.training.toy import toy_examples


def test_weights_give_every_part_the_same_mass():
    parts = torch.tensor([0] * 5 + [1] * 2 + [3] * 13)
    weights = balance_weights(parts)
    assert weights.sum() == pytest.approx(1)
    assert [float(weights[parts == p].sum()) for p in (0, 1, 3)] == pytest.approx([1 / 3] * 3)


def test_weights_equal_the_loop_that_counts():
    parts = torch.randint(6, (200,), generator=torch.Generator().manual_seed(0))
    present = parts.unique()
    slow = [1 / (len(present) * sum(int(q == p) for q in parts)) for p in parts]
    assert balance_weights(parts).tolist() == pytest.approx(slow)


@pytest.mark.parametrize(("at_least", "expected"), [(0, [10, 10, 10]), (150, [10, 150, 90])])
def test_the_cap_rule_of_the_pde_spec(at_least, expected):
    parts = torch.tensor([0] * 10 + [1] * 400 + [2] * 90)
    keep = balanced_subset(parts, torch.Generator().manual_seed(0), at_least)
    assert torch.bincount(parts[keep]).tolist() == expected


def test_every_member_of_a_large_part_can_be_drawn():
    parts = torch.tensor([0] * 2 + [1] * 20)
    kept = sum(balanced_subset(parts, torch.Generator().manual_seed(s)).int() for s in range(400))
    assert kept[:2].tolist() == [400, 400]
    assert bool((kept[2:] > 10).all())


def test_drawn_groups_are_even_and_subsets_exact():
    examples = toy_examples(60)
    curator = Curator(examples, GroupBalanced(), batch_size=60, epoch_size=40_000)
    curator.start()
    drawn = torch.bincount(examples.groups[curator.epoch_draws()], minlength=4) / 40_000
    assert torch.allclose(drawn, torch.full((4,), 0.25), atol=0.011)
    subset = Curator(examples, GroupSubsampled(), batch_size=8)
    subset.start()
    smallest = int(examples.group_counts().min())
    assert torch.bincount(examples.groups[subset.plan.active]).tolist() == [smallest] * 4


def test_class_balancing_needs_no_groups():
    examples = Examples.of(torch.zeros(10, 1), [0] * 9 + [1])
    curator = Curator(examples, ClassBalanced(), batch_size=5)
    curator.start()
    assert curator.plan.sample_weight[9] == pytest.approx(0.5)


def test_balancing_applies_to_what_an_earlier_policy_left():
    examples = toy_examples(60)
    curator = Curator(examples, Growing(first=20, step=0, after=99) >> GroupBalanced(), batch_size=5)
    curator.start()
    groups, weights = examples.groups[:20], curator.plan.sample_weight
    assert float(weights[20:].sum()) == 0
    masses = [float(weights[:20][groups == g].sum()) for g in groups.unique()]
    assert masses == pytest.approx([1 / len(masses)] * len(masses))


@pytest.mark.parametrize("policy", [GroupBalanced(), GroupSubsampled()])
def test_without_groups_the_remedy_is_named(policy):
    examples = Examples.of(torch.zeros(4, 1), [0, 1, 0, 1])
    with pytest.raises(DataError, match=f"{policy.name} needs a group per training example"):
        Curator(examples, policy).start()
