from dataclasses import replace

import pytest
import torch

from holdfast.data import Splits
from holdfast.errors import CheckpointError, DataError
from holdfast.poisoning.attacks import Backdoor, PoisonedSet, Targets, random_patch
from holdfast.training.state import save_state
from tests.poisoning.attacks.toy import tiny_examples


def made(labels=None, aim=None):
    train, test = tiny_examples(), tiny_examples(6, seed=1)
    levels = torch.randint(-8, 9, (3, 3, 8, 8), generator=torch.Generator().manual_seed(2))
    room = train.inputs.values[[1, 4, 7]]
    perturbations = levels / 255
    perturbations[(room + perturbations < 0) | (room + perturbations > 1)] = 0
    return train, PoisonedSet(
        "test",
        train.ids[[1, 4, 7]],
        perturbations,
        aim or Targets.of(test, [0], 1),
        epsilon=8 / 255,
        labels=labels,
        objective=0.25,
        trace=torch.tensor([1.0, 0.5]),
        settings={"seed": 3, "brewing": {"steps": 2}, "augment": None},
    )


def test_poisons_replace_their_bases_in_place_and_nothing_else_changes():
    train, poisoned = made()
    now = poisoned.apply(train)
    images, labels = now.gather(torch.arange(len(train)))
    wanted = train.inputs.values.clone()
    wanted[[1, 4, 7]] += poisoned.perturbations
    assert torch.equal(images, wanted) and torch.equal(labels, train.labels) and torch.equal(now.ids, train.ids)
    some = torch.tensor([7, 0, 4, 7])
    assert torch.equal(now.gather(some)[0], wanted[some])
    assert poisoned.is_poison(now).nonzero().flatten().tolist() == [1, 4, 7]
    assert (images * 255).allclose((images * 255).round(), atol=1e-4)


def test_a_shuffled_training_set_gets_the_same_poisons():
    train, poisoned = made()
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    mixed = poisoned.apply(train.subset(order))
    whole = poisoned.apply(train).gather(torch.arange(len(train)))[0]
    assert torch.equal(mixed.gather(torch.arange(len(train)))[0], whole[order])


def test_labels_change_only_where_an_attack_relabels():
    train, poisoned = made(labels=torch.tensor([2, 2, 0]))
    assert poisoned.apply(train).labels[[1, 4, 7]].tolist() == [2, 2, 0]
    assert train.labels[[1, 4, 7]].tolist() == [1, 1, 1]


def test_some_poisons_can_be_taken_back():
    train, poisoned = made()
    subset = poisoned.only(train.ids[[4, 9]])
    assert subset.ids.tolist() == train.ids[[4]].tolist()
    images = subset.apply(train).gather(torch.arange(len(train)))[0]
    changed = (images != train.inputs.values).flatten(1).any(1)
    assert changed.nonzero().flatten().tolist() == [4]


def test_only_the_training_part_of_splits_is_poisoned():
    train, poisoned = made()
    splits = Splits("toy", train, tiny_examples(6, seed=3), tiny_examples(6, seed=1))
    now = poisoned.poison(splits)
    assert now.test is splits.test and now.validation is splits.validation
    assert not torch.equal(now.train.gather(torch.tensor([1]))[0], train.gather(torch.tensor([1]))[0])


@pytest.mark.parametrize(
    "aim",
    [None, Backdoor(random_patch(3, 3, 0), 2, 1), Backdoor(random_patch(3, 3, 0), 2, 1, (4, 5))],
    ids=["targets", "random place", "fixed place"],
)
@pytest.mark.parametrize("labels", [None, torch.tensor([2, 2, 0])], ids=["clean", "relabelled"])
def test_what_is_saved_is_loaded_to_the_bit(tmp_path, aim, labels):
    train, poisoned = made(labels, aim)
    poisoned.save(tmp_path / "poisons.safetensors")
    again = PoisonedSet.load(tmp_path / "poisons.safetensors")
    for name in ("ids", "perturbations", "trace"):
        assert torch.equal(getattr(poisoned, name), getattr(again, name))
    for name in ("attack", "epsilon", "objective", "settings"):
        assert getattr(poisoned, name) == getattr(again, name)
    everything = torch.arange(len(train))
    one, other = poisoned.apply(train), again.apply(train)
    assert torch.equal(one.gather(everything)[0], other.gather(everything)[0]) and torch.equal(one.labels, other.labels)
    test = tiny_examples(12, seed=1)
    assert torch.equal(poisoned.aim.shown(test, 4).inputs.values, again.aim.shown(test, 4).inputs.values)
    assert type(again.aim) is type(poisoned.aim) and again.adversarial_class == 1


def test_what_is_wrong_is_named(tmp_path):
    train, poisoned = made()
    with pytest.raises(DataError, match="1 of 3 bases are not in the training set, such as id 31"):
        poisoned.apply(train.subset([1, 7]))
    with pytest.raises(DataError, match="over the budget"):
        replace(poisoned, epsilon=4 / 255)
    with pytest.raises(DataError, match="give one each"):
        replace(poisoned, ids=poisoned.ids[[0, 0, 1]])
    with pytest.raises(DataError, match="new labels for 3 poisons"):
        replace(poisoned, labels=torch.tensor([1]))
    with pytest.raises(DataError, match="data set that the poisons were made for"):
        replace(poisoned, perturbations=torch.zeros(3, 3, 4, 4)).apply(train)
    with pytest.raises(CheckpointError):
        PoisonedSet.load(tmp_path / "missing.safetensors")
    save_state({"model": {}}, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="holds no poisoned set"):
        PoisonedSet.load(tmp_path / "other.safetensors")
