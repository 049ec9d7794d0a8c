import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.errors import DataError
from holdfast.poisoning.attacks import Brewing, BullseyePolytope, Targets, read_package, read_setups
from tests.poisoning.attacks.toy import tiny_case, tiny_examples, tiny_net


def dump(path, value):
    path.write_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


def picture(pixels):
    return Image.fromarray((pixels.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy())


def package(folder, target=None, ids=None, moved=None, labels=None):
    """A package as the benchmark's attacks write it, from poisons of our own."""
    train, targets, bases = tiny_case()
    poisoned = BullseyePolytope(Brewing(steps=3, signed=False)).craft(tiny_net(), train, targets, bases)
    images, own = poisoned.apply(train).gather(bases)
    images = images if moved is None else (images + moved).clamp(0, 1)
    own = own.tolist() if labels is None else labels
    dump(folder / "poisons.pickle", [(picture(image), label) for image, label in zip(images, own, strict=True)])
    dump(folder / "base_indices.pickle", train.ids[bases].numpy() if ids is None else ids)
    dump(folder / "target.pickle", target or (picture(targets.images[0]), int(targets.labels[0])))
    return train, poisoned


def test_setups_load_and_give_targets_and_bases(tmp_path):
    train, test = tiny_examples(), tiny_examples(6, seed=1)
    entries = [
        {"target class": 2, "target index": 5, "base class": 1, "base indices": np.array([10, 31, 3 + 7 * 7])},
        {"target class": np.int64(0), "target index": 3, "base class": 1, "base indices": [31]},
    ]
    dump(tmp_path / "setups.pickle", entries)
    first, second = read_setups(tmp_path / "setups.pickle")
    assert first.bases(train).tolist() == [1, 4, 7] and (train.labels[first.bases(train)] == 1).all()
    targets = first.targets(test)
    assert torch.equal(targets.images[0], test.inputs.values[5]) and targets.adversarial_class == 1
    assert second.base_ids.tolist() == [31] and second.target_class == 0
    with pytest.raises(DataError, match="not of class 2; give the benchmark's whole test set"):
        first.targets(test.subset([0, 1, 2]))
    with pytest.raises(DataError, match="not in the training set"):
        first.bases(train.subset([0, 1, 2]))
    dump(tmp_path / "setups.pickle", {"target class": 1})
    with pytest.raises(DataError, match="holds no setups"):
        read_setups(tmp_path / "setups.pickle")


def test_a_package_gives_the_poisons_it_was_made_of(tmp_path):
    train, poisoned = package(tmp_path)
    found = read_package(tmp_path, train)
    assert torch.equal(found.ids, poisoned.ids) and torch.equal(found.perturbations, poisoned.perturbations)
    assert isinstance(found.aim, Targets) and torch.equal(found.aim.images, poisoned.aim.images)
    everything = torch.arange(len(train))
    assert torch.equal(found.apply(train).gather(everything)[0], poisoned.apply(train).gather(everything)[0])


def test_a_backdoor_package_shows_its_target_with_the_patch_on_it(tmp_path):
    test = tiny_examples(6, seed=1)
    image, patch = test.inputs.values[2], torch.ones(3, 2, 3)
    train, _ = package(tmp_path, target=(picture(image), 2, patch, [4, 1]))
    aim = read_package(tmp_path, train).aim
    wanted = image.clone()
    wanted[:, 1:3, 4:7] = 1
    assert torch.equal(aim.images[0], wanted) and aim.labels.tolist() == [2]


def test_a_list_of_patched_images_is_a_list_of_targets(tmp_path):
    images = tiny_examples(6, seed=1).inputs.values
    train, poisoned = package(tmp_path)
    dump(tmp_path / "source.pickle", [(picture(image), 2) for image in images])
    assert torch.equal(read_package(tmp_path, train).aim.images, images)
    (tmp_path / "source.pickle").unlink()
    assert torch.equal(read_package(tmp_path, train).aim.images, poisoned.aim.images)


def test_one_level_over_the_budget_is_tolerated_and_more_is_not(tmp_path):
    train, _ = package(tmp_path, moved=40 / 255)
    with pytest.raises(DataError, match="levels, over 9; check"):
        read_package(tmp_path, train)
    assert read_package(tmp_path, train, epsilon=None).largest > 9 / 255


def test_packages_that_do_not_fit_are_refused(tmp_path):
    train, _ = package(tmp_path, labels=[0] * 5)
    with pytest.raises(DataError, match="n't a clean-label package"):
        read_package(tmp_path, train)
    package(tmp_path, ids=[3, 10])
    with pytest.raises(DataError, match="one poison for each of its 2 base indices"):
        read_package(tmp_path, train)
    package(tmp_path, ids=[1.5] * 5)
    with pytest.raises(DataError, match="isn't a whole number"):
        read_package(tmp_path, train)
    package(tmp_path, ids=np.array([1.5] * 5))
    with pytest.raises(DataError, match="aren't a list of whole numbers"):
        read_package(tmp_path, train)
    package(tmp_path, target=[1, 2])
    with pytest.raises(DataError, match="isn't an image with its class"):
        read_package(tmp_path, train)
    (tmp_path / "target.pickle").unlink()
    with pytest.raises(DataError, match="can't be read"):
        read_package(tmp_path, train)


def test_images_that_are_none_of_this_data_set_are_refused(tmp_path):
    train, _ = package(tmp_path)
    image, label = np.zeros((8, 8, 3), np.uint8), 1
    dump(tmp_path / "poisons.pickle", [(image, label)] * 4 + [(image[:4], label)])
    with pytest.raises(DataError, match="several shapes"):
        read_package(tmp_path, train)
    for broken in (np.nan, np.inf):
        dump(tmp_path / "poisons.pickle", [(np.full((3, 8, 8), broken, np.float32), label)] * 5)
        with pytest.raises(DataError, match="isn't an image"):
            read_package(tmp_path, train, epsilon=None)


def test_a_patch_without_a_place_is_refused(tmp_path):
    image = picture(tiny_examples(6, seed=1).inputs.values[2])
    for place, reason in {"three": ([4, 1, 1], "3 coordinates"), "large": ([2**63, 1], "63 bits")}.values():
        train, _ = package(tmp_path, target=(image, 2, torch.ones(3, 2, 3), place))
        with pytest.raises(DataError, match=reason):
            read_package(tmp_path, train)
