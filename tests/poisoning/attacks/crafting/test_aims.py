import pytest
import torch

from holdfast.data import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.poisoning.attacks import Backdoor, Targets, random_patch
from tests.poisoning.attacks.toy import tiny_examples


def test_a_patch_is_pasted_where_it_says_and_nowhere_else():
    images, patch = torch.rand(3, 3, 8, 8), torch.full((3, 2, 3), 2.0)
    for place, (top, left) in {(1, 4): (1, 4), "bottom-right": (6, 5)}.items():
        wanted = images.clone()
        wanted[:, :, top : top + 2, left : left + 3] = 2
        assert torch.equal(Backdoor(patch, 0, 1, place).paste(images, torch.Generator()), wanted)


def test_random_places_differ_reach_every_corner_and_depend_on_the_stream():
    images, backdoor = torch.zeros(400, 3, 4, 5), Backdoor(torch.ones(3, 2, 2), 0, 1)
    pasted = backdoor.paste(images, torch.Generator().manual_seed(0))
    assert torch.equal(pasted.sum((1, 2, 3)), torch.full((400,), 12.0))
    places = pasted[:, 0].flatten(1).argmax(1)
    assert sorted(places.unique().tolist()) == sorted(5 * row + column for row in range(3) for column in range(4))
    assert torch.equal(pasted, backdoor.paste(images, torch.Generator().manual_seed(0)))
    assert images.sum() == 0


def test_a_victim_is_shown_patched_images_of_the_source_class_with_true_labels():
    test = tiny_examples(30)
    backdoor = Backdoor(random_patch(3, 3, 0), source_class=2, adversarial_class=0, place=(0, 0))
    shown = backdoor.shown(test, seed=1)
    images, labels = shown.gather(torch.arange(len(shown)))
    assert labels.tolist() == [2] * 10 and shown.n_classes == 3
    assert torch.equal(images[:, :, :3, :3], backdoor.patch.expand(10, -1, -1, -1))
    originals = test.inputs.values[test.labels == 2]
    assert torch.equal(images[:, :, 3:], originals[:, :, 3:])
    many = Examples.of(torch.rand(1200, 3, 8, 8), torch.full((1200,), 2))
    assert len(backdoor.shown(many)) == 1000


def test_targets_are_shown_as_they_are():
    test = tiny_examples()
    targets = Targets.of(test, [4, 2], adversarial_class=0)
    shown = targets.shown(test)
    assert torch.equal(shown.inputs.values, test.inputs.values[[4, 2]]) and shown.labels.tolist() == [1, 2]


def test_patches_depend_on_their_seed_only():
    torch.manual_seed(5)
    one = random_patch(3, 8, 1)
    assert torch.equal(one, random_patch(3, 8, 1)) and not torch.equal(one, random_patch(3, 8, 2))
    assert sorted(one.unique().tolist()) == [0, 1]


def test_aims_that_make_no_sense_are_refused():
    test = tiny_examples()
    with pytest.raises(ConfigError, match="of class 1 already"):
        Targets.of(test, [4], adversarial_class=1)
    with pytest.raises(DataError, match="give one of each"):
        Targets.of(test, [], adversarial_class=1)
    with pytest.raises(ConfigError, match="choose two"):
        Backdoor(random_patch(3, 2, 0), 1, 1)
    with pytest.raises(DataError, match="doesn't fit"):
        Backdoor(random_patch(3, 9, 0), 1, 0).paste(torch.rand(1, 3, 8, 8), torch.Generator())
    with pytest.raises(DataError, match="leaves the image"):
        Backdoor(random_patch(3, 2, 0), 1, 0, (7, 0)).paste(torch.rand(1, 3, 8, 8), torch.Generator())
    with pytest.raises(DataError, match="no example of the source class"):
        Backdoor(random_patch(3, 2, 0), 5, 0).shown(test)
