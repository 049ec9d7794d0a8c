"""Restricted ImageNet: nine animals, each several neighbouring classes of ImageNet (Tsipras et al. 2019).

The paper is https://arxiv.org/abs/1805.12152. SPARE searches it for shortcuts that nobody labelled (Section 5.5.3 and
Table 5.4 of the dissertation, https://escholarship.org/uc/item/0399v1qw): many frogs are taken for insects, because
green leaves are learned first. There are no attributes and no groups. The folder is the usual one of ImageNet: `train`
and `val` with a folder per synset, whose rank by name is ImageNet's class index. The official validation images are the
test set, and validation is held out from training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Splits
from holdfast.data.readers.folder import lazy_splits, waterbirds_reader
from holdfast.data.readers.idx import split_validation
from holdfast.data.readers.image_tree import image_files
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError

#: ImageNet's classes in each superclass, by index.
SUPERCLASSES = {
    "dog": range(151, 269),
    "cat": range(281, 286),
    "frog": range(30, 33),
    "turtle": range(33, 38),
    "bird": range(80, 101),
    "primate": range(365, 383),
    "fish": range(389, 398),
    "crab": range(118, 122),
    "insect": range(300, 320),
}

#: Published numbers of training images, in that order, before any are held out.
TRAIN_COUNTS = (147_873, 6_500, 3_900, 6_500, 27_141, 23_400, 11_234, 5_200, 26_000)

_N_SYNSETS = 1000


def read_superclasses(folder: Path) -> tuple[list[Path], NDArray[np.int64]]:
    """The images of the nine superclasses in a folder of synsets; other synsets aren't opened.

    Args:
        folder: has a folder for each of ImageNet's 1,000 synsets, such as ``n01440764``.

    Returns:
        The images by superclass, synset and name, and the superclass of each, int64 of shape (n,).

    Raises:
        DataError: if there aren't 1,000 synsets, so that their ranks would not be ImageNet's indices.
    """
    synsets = sorted(path for path in folder.iterdir() if path.is_dir())
    if len(synsets) != _N_SYNSETS:
        raise DataError(
            f"{folder} has {len(synsets)} folders instead of the 1,000 synsets whose order gives ImageNet's class "
            "index; add the missing ones, empty where you don't need them, and remove others"
        )
    images: list[Path] = []
    counts = []
    for indices in SUPERCLASSES.values():
        members = [image for index in indices for image in image_files(synsets[index])]
        images += members
        counts.append(len(members))
    return images, np.repeat(np.arange(len(SUPERCLASSES)), counts)


@register
@dataclass(frozen=True)
class RestrictedImageNet(DataSet):
    """Nine kinds of animals from ImageNet, without attributes: for shortcuts that nobody labelled.

    Attributes:
        size: side of the square that the model gets.
        validation: how many of the training images are held out for validation.
        seed: decides which.
        check_counts: refuse data whose superclasses don't have the published sizes.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "restricted-imagenet"
    summary = "267,898 animals of ImageNet, 9 classes, no groups"
    files = (RemoteFile("imagenet/train"), RemoteFile("imagenet/val"))
    by_hand = (
        "agree to the terms at https://image-net.org/download and unpack ILSVRC 2012 into imagenet/train and "
        "imagenet/val, each with a folder per synset"
    )
    recipe: ClassVar[Any] = {
        "model": "resnet50",
        "epochs": 90,
        "batch_size": 256,
        "learning_rate": 0.1,
        "weight_decay": 1e-4,
        "momentum": 0.9,
        "nesterov": True,
        "optimizer": "sgd",
        "schedule": "steps",
        "milestones": (30 / 90, 60 / 90, 80 / 90),
        "select_by": "accuracy",
        "augment": "flip",
    }

    size: int = 224
    validation: int = 10_000
    seed: int = 0
    check_counts: bool = True
    workers: int = 2

    def load(self, root: Path) -> Splits:
        """List the images; they are opened when they are gathered."""
        folder = self.locate(root, "imagenet/train")
        images, labels = read_superclasses(folder)
        if self.check_counts:
            _check_counts(folder, labels)
        test_images, test_labels = read_superclasses(self.locate(root, "imagenet/val"))
        _, held_out = split_validation(len(images), self.validation, self.seed)
        codes = np.repeat(np.array([0, 2]), [len(images), len(test_images)])
        codes[held_out] = 1
        return lazy_splits(
            self.name,
            images + test_images,
            waterbirds_reader(self.size),
            labels=np.concatenate([labels, test_labels]),
            attributes=None,
            codes=codes,
            class_names=tuple(SUPERCLASSES),
            workers=self.workers,
        )


def _check_counts(folder: Path, labels: NDArray[np.int64]) -> None:
    counts = np.bincount(labels, minlength=len(SUPERCLASSES))
    for name, count, published in zip(SUPERCLASSES, counts, TRAIN_COUNTS, strict=True):
        if count != published:
            raise DataError(
                f"{folder} has {count} images of {name}, published are {published}; unpack them again, or set "
                "check_counts to False if the difference is intended"
            )
