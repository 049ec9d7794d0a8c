"""Stratified random mini-batches in the loop: class counts, nothing chosen, and chains."""

import pytest
import torch

from holdfast.coresets import Stratified
from holdfast.data import Examples
from holdfast.spurious import ClassBalanced
from holdfast.training import Curator
from tests.training.policies import DropHighest
from tests.training.toy import toy_examples, toy_model


def uneven(sizes=(50, 30, 20), d=4):
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return Examples.of(torch.randn(len(labels), d, generator=torch.Generator().manual_seed(0)), labels)


def counts_of(curator, steps, classes):
    return torch.stack([torch.bincount(batch.labels, minlength=classes) for batch in curator.steps(steps)])


def test_every_mini_batch_has_the_classes_in_proportion_and_an_epoch_every_example_once():
    examples = uneven()
    curator = Curator(examples, Stratified(), batch_size=10, seed=3)
    batches = [batch.positions for batch in curator.steps(20)]
    for epoch in (batches[:10], batches[10:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(100))
    counts = torch.stack([torch.bincount(examples.labels[one], minlength=3) for one in batches])
    assert int((counts - torch.tensor([5, 3, 2])).abs().max()) <= 1
    plain = counts_of(Curator(examples, batch_size=10, seed=3), 20, 3)
    assert int((plain - torch.tensor([5, 3, 2])).abs().max()) > 1, "random mini-batches are not"


def test_it_needs_no_model_and_weighs_nothing():
    curator = Curator(uneven(), Stratified(), batch_size=10)
    assert all(bool((batch.weights == 1).all()) for batch in curator.steps(12))
    assert not curator.weighted


@pytest.mark.parametrize("epoch_size", [30, 100, 170])
def test_short_epochs_go_on_where_the_last_one_stopped(epoch_size):
    curator = Curator(uneven(), Stratified(), batch_size=10, epoch_size=epoch_size)
    drawn = torch.cat([batch.positions for batch in curator.steps(20)])
    assert sorted(drawn[:100].tolist()) == sorted(drawn[100:].tolist()) == list(range(100))


def test_behind_class_balancing_every_class_has_as_many_as_any_other():
    curator = Curator(uneven(), ClassBalanced() >> Stratified(), batch_size=12, epoch_size=96)
    assert int((counts_of(curator, 8, 3) - 4).abs().max()) <= 1


def test_what_another_policy_drops_is_not_drawn():
    curator = Curator(toy_examples(), DropHighest(count=10) >> Stratified(), batch_size=10)
    model = toy_model()
    for _ in curator.epochs(3, model, torch.optim.SGD(model.parameters(), lr=0.0)):
        active = curator.plan.active
        drawn = torch.cat([batch.positions for batch in curator])
        left = torch.arange(60) if active is None else active.nonzero().flatten()
        assert sorted(drawn.tolist()) == left.tolist()
    assert len(left) == 40
