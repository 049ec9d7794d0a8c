from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import describe, find, load
from holdfast.data.sets.images.restricted_imagenet import SUPERCLASSES, TRAIN_COUNTS, read_superclasses
from holdfast.errors import DataError
from holdfast.training import Training
from holdfast.training.settings import learning_rate_factor
from tests.data.trees import write_synsets

#: The first and the last synset of dogs and of frogs, an insect, and three that belong to no superclass.
TRAIN = {151: 3, 268: 2, 30: 4, 32: 1, 319: 2, 29: 1, 150: 1, 269: 1}
TEST = {200: 1, 31: 2, 320: 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_synsets(root / "imagenet/train", TRAIN)
    write_synsets(root / "imagenet/val", TEST)
    return root


def test_superclasses_are_ranges_of_class_indices(root: Path) -> None:
    images, labels = read_superclasses(root / "imagenet/train")
    assert [(image.parent.name, image.name) for image in images[:4]] == [
        ("n00000151", "0.JPEG"), ("n00000151", "1.JPEG"), ("n00000151", "2.JPEG"), ("n00000268", "0.JPEG"),
    ]  # fmt: skip
    names = list(SUPERCLASSES)
    assert [names[label] for label in labels] == ["dog"] * 5 + ["frog"] * 5 + ["insect"] * 2


def test_the_ranges_are_the_published_ones() -> None:
    sizes = {name: len(indices) for name, indices in SUPERCLASSES.items()}
    assert sizes == {
        "dog": 118, "cat": 5, "frog": 3, "turtle": 5, "bird": 21, "primate": 18, "fish": 9, "crab": 4, "insect": 20,
    }  # fmt: skip
    indices = [index for part in SUPERCLASSES.values() for index in part]
    assert len(set(indices)) == len(indices)
    assert sum(TRAIN_COUNTS) == 257_748
    assert all(count <= 1300 * size for count, size in zip(TRAIN_COUNTS, sizes.values(), strict=True))


def test_validation_is_held_out_by_the_seed_and_ids_name_images_whatever_it_is(root: Path) -> None:
    one, other = (load("restricted-imagenet", root, check_counts=False, validation=4, seed=seed) for seed in (0, 1))
    assert [len(part) for part in (one.train, one.validation, one.test)] == [8, 4, 3]
    assert one.validation.ids.tolist() != other.validation.ids.tolist()
    assert sorted([*one.train.ids.tolist(), *one.validation.ids.tolist()]) == list(range(12))
    assert one.test.ids.tolist() == other.test.ids.tolist() == [12, 13, 14]
    assert one.test.labels.tolist() == [0, 2, 2]
    assert one.train.groups is None
    assert set(describe(one)["train"]) == set(SUPERCLASSES)


def test_images_are_opened_when_gathered(root: Path) -> None:
    splits = load("restricted-imagenet", root, check_counts=False, validation=4, size=16)
    assert splits.train.gather(torch.tensor([7, 0]))[0].shape == (2, 3, 16, 16)


def test_other_counts_than_the_published_are_refused(root: Path) -> None:
    with pytest.raises(DataError, match="has 5 images of dog, published are 147873"):
        load("restricted-imagenet", root)


def test_without_all_synsets_an_index_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "imagenet/train/n00000151").mkdir(parents=True)
    with pytest.raises(DataError, match="has 1 folders instead of the 1,000 synsets"):
        load("restricted-imagenet", tmp_path)


def test_the_recipe_cuts_the_rate_after_30_60_and_80_of_90_epochs() -> None:
    recipe = Training(**{key: value for key, value in find("restricted-imagenet").recipe.items() if key != "model"})
    rates = [learning_rate_factor(recipe, epoch / recipe.epochs) for epoch in range(recipe.epochs)]
    assert np.flatnonzero(np.diff(rates)).tolist() == [29, 59, 79]
