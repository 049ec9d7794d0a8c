"""CelebA by celebrity (LEAF): is the person smiling? Image names in LEAF's JSON, images in CelebA's folder.

The images stay bytes from 0 to 255 of shape (3, 84, 84), as the published network takes them: 515 celebrities are 220
MB, as floats they would be a gigabyte.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.readers.images import ImageReader
from holdfast.data.readers.leaf import LeafUsers, User, federate, leaf_folder, read_leaf
from holdfast.data.remote_files import RemoteFile

_READER = ImageReader(resize=84, crop=None)


def smile_arrays(x: Any, y: Any) -> User:
    """A celebrity's image names, an array of strings, and 1 where the person smiles, else 0."""
    if not all(isinstance(name, str) and name and Path(name).name == name for name in x):
        raise ValueError("x must be names of image files, without folders")
    labels = np.asarray(y, np.float64)
    if labels.ndim != 1 or not np.isin(labels, (0, 1)).all():
        raise ValueError("y must be 0 or 1")
    return np.array(x, dtype=np.str_), labels.astype(np.int64)


@register_federation
@dataclass(frozen=True)
class CelebaLeaf(FederatedData):
    """A client per celebrity with at least five images.

    Attributes:
        celebrities: how many are sampled; 0 takes all.
        workers: threads that decode images.
    """

    name = "celeba-leaf"
    summary = "CelebA by celebrity (LEAF): 515 people, smiling or not, 84x84 RGB"
    files = (
        RemoteFile("celeba-leaf/train", also=("celeba-leaf/all_data", "celeba-leaf/data")),
        RemoteFile("celeba/img_align_celeba", also=("celeba-leaf/img_align_celeba", "celeba-leaf/data/raw")),
    )
    by_hand = (
        "agree to the licence at https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, put img_align_celeba into "
        "celeba/, run LEAF's data/celeba/preprocess.sh (https://github.com/TalwalkarLab/leaf) with -s niid --sf 0.05 "
        "-k 5 -t sample and put its data/train and data/test, or data/all_data, into celeba-leaf/"
    )
    recipe: ClassVar[Any] = TrainingRecipe("cnn-celeba", 0.1, 16, rounds=1000, cohort=10)

    celebrities: int = 515
    workers: int = 2

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read LEAF's files, sample celebrities by the seed, decode their images."""
        folder = leaf_folder(self.locate(root, "celeba-leaf"))
        images = self.locate(
            root, "celeba/img_align_celeba", "celeba-leaf/img_align_celeba", "celeba-leaf/data/raw/img_align_celeba"
        )
        named = read_leaf(folder, smile_arrays, self.celebrities or None, seed, at_least=5)
        with ThreadPoolExecutor(max(1, self.workers)) as threads:

            def decode(user: User) -> User:
                names, labels = user
                return np.stack(list(threads.map(lambda name: _READER.pixels(images / str(name)), names))), labels

            train = {name: decode(user) for name, user in named.train.items()}
            test = None if named.test is None else {name: decode(user) for name, user in named.test.items()}
        return federate(LeafUsers(train, test), 2, seed)
