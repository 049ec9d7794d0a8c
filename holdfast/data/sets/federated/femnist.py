"""FEMNIST (LEAF): handwritten digits and letters by writer, 62 classes, 28x28.

``femnist`` is a client per writer, 205 of them as in Ditto; ``femnist-skewed`` deals the same images out to 100 clients
that know five characters each (the paper's generator is unpublished; sizes are Fashion-MNIST's).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import deal_in_turn, random_classes, split_parts
from holdfast.data.readers.leaf import User, federate, leaf_folder, read_leaf
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError
from holdfast.streams import data_stream

_CLASSES = 62
_FILES = (RemoteFile("femnist/train", also=("femnist/all_data", "femnist/data")),)
_BY_HAND = (
    "run LEAF's data/femnist/preprocess.sh (https://github.com/TalwalkarLab/leaf) with -s niid --sf 0.1 -k 0 -t sample "
    "and put its data/train and data/test, or data/all_data, into femnist/"
)


def character_arrays(x: Any, y: Any) -> User:
    """A writer's images, float32 (n, 1, 28, 28), and classes from 0 to 61."""
    images, labels = np.asarray(x, np.float32), np.asarray(y, np.float64)
    if images.ndim != 2 or images.shape[1] != 784:
        raise ValueError(f"an image must have 784 numbers, and x has shape {images.shape}")
    if not np.isfinite(images).all():
        raise ValueError("x has numbers that aren't finite")
    if labels.ndim != 1 or not np.isin(labels, np.arange(_CLASSES)).all():
        raise ValueError(f"y must be classes from 0 to {_CLASSES - 1}")
    return images.reshape(-1, 1, 28, 28), labels.astype(np.int64)


@register_federation
@dataclass(frozen=True)
class Femnist(FederatedData):
    """A client per writer.

    Attributes:
        writers: how many are sampled; 0 takes all.
    """

    name = "femnist"
    summary = "FEMNIST by writer (LEAF): 205 writers, 28x28 grey, 62 classes"
    files = _FILES
    by_hand = _BY_HAND
    recipe: ClassVar[Any] = TrainingRecipe("cnn-femnist", 0.1, 32, rounds=1000, cohort=10, fixed=(0.01, 0.1, 1.0))

    writers: int = 205

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read LEAF's files, sample writers by the seed."""
        folder = leaf_folder(self.locate(root, "femnist"))
        return federate(read_leaf(folder, character_arrays, self.writers or None, seed), _CLASSES, seed)


@register_federation
@dataclass(frozen=True)
class FemnistSkewed(FederatedData):
    """The characters of sampled writers over clients that know a few classes each.

    Attributes:
        clients: how many.
        classes_per_client: characters that a client has examples of, drawn without replacement.
        writers: how many writers' characters are pooled; 0 takes all.
    """

    name = "femnist-skewed"
    summary = "FEMNIST over 100 clients of 5 of the 62 classes each (Ditto's skewed FEMNIST)"
    files = _FILES
    by_hand = _BY_HAND
    recipe: ClassVar[Any] = TrainingRecipe("cnn-femnist", 0.1, 32, rounds=1000, cohort=10, fixed=(0.01, 0.1, 1.0))

    clients: int = 100
    classes_per_client: int = 5
    writers: int = 400

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Pool the writers' images and deal them out: sizes LogNormal(3, 1) + 10 scaled to a mean of 120."""
        folder = leaf_folder(self.locate(root, "femnist"))
        users = read_leaf(folder, character_arrays, self.writers or None, seed)
        everyone = [*users.train.values(), *(users.test or {}).values()]
        images, labels = (np.concatenate([user[part] for user in everyone]) for part in (0, 1))
        rng = data_stream(seed, "femnist-skewed")
        mixed = rng.permutation(len(labels))
        images, labels = images[mixed], labels[mixed]
        owned = random_classes(self.clients, self.classes_per_client, _CLASSES, rng)
        there = np.bincount(labels, minlength=_CLASSES)
        if (there[owned] == 0).any():
            missing = int(owned[there[owned] == 0][0])
            raise DataError(f"no writer in {folder} has written class {missing}; pool more writers")
        raw = rng.lognormal(3, 1, self.clients) + 10
        shares = rng.lognormal(1, 1, owned.shape)
        wanted = shares / shares.sum(1, keepdims=True) * (120 * raw / raw.mean())[:, None]
        dealt = deal_in_turn(labels, owned, np.minimum(wanted.astype(np.int64) + 1, there[owned]))
        inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
        train, validation, test = (part.gather(inputs, targets) for part in split_parts(dealt, rng))
        return Clients(train, validation, test, _CLASSES).check()
