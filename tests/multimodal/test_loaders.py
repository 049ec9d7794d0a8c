"""Waterbirds, the pairs of ImageNet and folders, from small trees in their layout."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks import imagenet_pair
from holdfast.multimodal.tasks.folder_task import FolderClip
from holdfast.multimodal.tasks.imagenet_pair import PAIRS, ImageNetPair, held_out
from holdfast.multimodal.tasks.waterbirds import WaterbirdsClip
from tests.multimodal.trees import RedDetector, imagenet, waterbirds

TINY = Preprocessing(30)
BIRDS = WaterbirdsClip(check_counts=False, workers=0)


def test_waterbirds_have_words_groups_and_outlined_birds(tmp_path):
    waterbirds(tmp_path)
    task = BIRDS.load(tmp_path, TINY)
    assert task.wording.class_names == ("landbird", "waterbird")
    assert task.wording.spurious_words == ("land", "water")
    assert task.splits.test.group_names == (
        "landbird/land", "landbird/water", "waterbird/land", "waterbird/water",
    )  # fmt: skip
    assert task.splits.train.group_counts().tolist() == [2, 2, 2, 2]
    images, _ = task.splits.test.gather(torch.arange(8))
    assert images.shape == (8, 3, 30, 30)
    birds = task.outlined("test", torch.arange(8))
    assert birds.shape == (8, 30, 30)
    assert birds[:, :, :15].all()
    assert not birds[:, :, 15:].any()


def test_waterbirds_without_segmentations_have_no_regions(tmp_path):
    waterbirds(tmp_path, masks=False)
    task = BIRDS.load(tmp_path, TINY)
    with pytest.raises(DataError, match="nobody outlined the objects in the test images of waterbirds"):
        task.outlined("test", torch.arange(1))


def test_waterbirds_of_other_sizes_are_refused_unless_asked_for(tmp_path):
    waterbirds(tmp_path)
    with pytest.raises(DataError, match="published are 3498"):
        WaterbirdsClip(workers=0).load(tmp_path, TINY)
    with pytest.raises(DataError, match="holdfast data get waterbirds"):
        BIRDS.load(tmp_path / "elsewhere", TINY)


@pytest.fixture
def pacifiers(tmp_path, monkeypatch):
    imagenet(tmp_path, PAIRS["pacifier"].synsets)
    detector = RedDetector()
    monkeypatch.setattr(imagenet_pair, "load_owl_vit", lambda name: detector)
    return tmp_path, detector


def test_a_pair_of_imagenet_has_the_attribute_that_the_detector_sees(pacifiers):
    root, detector = pacifiers
    task = ImageNetPair(workers=0).load(root, TINY)
    assert task.wording.class_names == ("baby pacifier", "water bottle")
    assert task.wording.spurious_words == ("", "baby")
    assert {words for _, words in detector.asked} == {("baby",)}
    assert task.splits.validation.group_counts().tolist() == [3, 3, 3, 3]
    assert task.splits.train.group_counts().tolist() == [3, 3, 3, 3]
    assert task.splits.test.group_counts().tolist() == [2, 2, 2, 2]
    images, _ = task.splits.test.gather(torch.arange(8))
    red = TINY.pictures(images).mean((2, 3)).argmax(1) == 0
    assert torch.equal(red.long(), task.splits.test.attributes)
    assert float(task.outlined("test", torch.tensor([0])).float().mean()) == pytest.approx(0.5)


def test_the_detector_is_asked_once(pacifiers):
    root, detector = pacifiers
    first = ImageNetPair(workers=0).load(root, TINY)
    asked = len(detector.asked)
    again = ImageNetPair(workers=0).load(root, TINY)
    assert len(detector.asked) == asked > 0
    assert torch.equal(first.splits.train.ids, again.splits.train.ids)
    other = ImageNetPair(workers=0, seed=1).load(root, TINY)
    assert not torch.equal(first.splits.train.ids, other.splits.train.ids)


def test_an_image_the_detector_never_saw_is_named(pacifiers):
    root, _ = pacifiers
    ImageNetPair(workers=0).load(root, TINY)
    imagenet(root, PAIRS["pacifier"].synsets, train=13)
    with pytest.raises(DataError, match=r"doesn't know the image n03825788_train_012\.JPEG"):
        ImageNetPair(workers=0).load(root, TINY)


def test_validation_holds_out_25_of_each_cell_of_training():
    labels, shown = np.repeat([0, 1], 200), np.tile([0, 1], 200)
    available = np.arange(400) % 10 < 8
    chosen = held_out(labels, shown, available, 0)
    assert available[chosen].all()
    cells = np.bincount(2 * labels[chosen] + shown[chosen])
    assert cells.tolist() == [25, 25, 25, 25]
    assert len(set(chosen.tolist())) == 100


def test_a_folder_needs_names_and_takes_masks(tmp_path):
    waterbirds(tmp_path)
    folder = tmp_path / "waterbirds_v1.0"
    with pytest.raises(ConfigError, match=r"these have none; give --folder\.class-names"):
        FolderClip(folder).load(tmp_path, TINY)
    named = FolderClip(folder, ("gull", "crow"), ("shore", "field"), workers=0)
    task = named.load(tmp_path, TINY)
    assert task.wording.spurious_words == ("shore", "field")
    assert not task.regions
    masks = replace(named, masks=tmp_path / "CUB_200_2011/segmentations", region="mask")
    assert masks.load(tmp_path, TINY).outlined("train", torch.arange(2)).any()
