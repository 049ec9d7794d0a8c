"""BAR, the biased action recognition set: six actions in their usual places, and in unusual ones (Nam et al. 2020).

The paper is https://arxiv.org/abs/2007.02561. Its training images are one environment, its test images the other; 50
clients of five actions draw one of the two (Personalized FL with spurious features, Section 6.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import Partition, Rows, by_classes
from holdfast.data.readers.images import ImageReader
from holdfast.data.remote_files import RemoteFile
from holdfast.data.sets.federated.celebrity_clients import image_reader
from holdfast.data.sets.federated.environments import balanced_classes, draw_environments, in_disjoint_environments
from holdfast.errors import DataError
from holdfast.streams import data_stream

ACTIONS = ("climbing", "diving", "fishing", "pole vaulting", "racing", "throwing")
_COUNTS = {"train": (326, 520, 163, 279, 336, 317), "test": (105, 159, 42, 131, 132, 85)}
_NAME = re.compile(r"(.+)_\d+")


@register_federation
@dataclass(frozen=True)
class BarClients(FederatedData):
    """Actions in usual and unusual places.

    Attributes:
        clients: how many.
        actions: of each client.
        size: side of the square that the model gets.
        check_counts: refuse data that is not the published one.
        workers: threads that decode images.
    """

    name = "bar"
    summary = "BAR over 50 clients of 5 actions, in their usual places or in unusual ones"
    files = (RemoteFile("BAR/train", also=("bar/train",)), RemoteFile("BAR/test", also=("bar/test",)))
    by_hand = "get https://github.com/alinlab/BAR and put its folders train and test into BAR/"
    recipe: ClassVar[Any] = TrainingRecipe(
        "resnet18-pixels",
        1e-4,
        16,
        rounds=500,
        cohort=5,
        local_steps=0,
        local_epochs=5,
        optimizer="adam",
        weights="imagenet",
        finetune_epochs=5,
    )

    clients: int = 50
    actions: int = 5
    size: int = 224
    check_counts: bool = True
    workers: int = 2

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read file names, deal both environments out over the same clients, decode the images."""
        paths: list[Path] = []
        labels: list[Rows] = []
        for part, published in _COUNTS.items():
            folder = self.locate(root, f"BAR/{part}", f"bar/{part}")
            images, actions = read_actions(folder)
            counts = np.bincount(actions, minlength=len(ACTIONS)).tolist()
            if self.check_counts and counts != list(published):
                raise DataError(
                    f"{folder} has {counts} images of {', '.join(ACTIONS)}; BAR has {list(published)}: get it again, "
                    "or pass check_counts=False"
                )
            paths += images
            labels.append(actions)
        rng = data_stream(seed, "bar clients")
        owned = balanced_classes(self.clients, self.actions, len(ACTIONS), rng)
        own = draw_environments(self.clients, 0.5, rng)
        pooled = np.concatenate(labels)
        environment = np.repeat([0, 1], [len(labels[0]), len(labels[1])])
        holders = np.full(len(pooled), -1, np.int64)
        even = np.ones(self.clients, np.int64)
        for which in (0, 1):
            rows = np.flatnonzero(environment == which)
            dealt = by_classes(pooled[rows], owned, even, rng)
            holders[rows[dealt.rows]] = np.repeat(np.arange(self.clients), dealt.counts)
        mine = np.append(own, -1)[holders]
        here, there = (
            Partition.of_owners(np.where(inside, holders, -1), self.clients)
            for inside in (environment == mine, environment == 1 - mine)
        )
        reader = image_reader(paths, ImageReader(resize=self.size, crop=None), self.workers)
        return in_disjoint_environments(here, there, reader, pooled, rng, classes=len(ACTIONS))


def read_actions(folder: Path) -> tuple[list[Path], Rows]:
    """The images of a folder in the order of their names, and the action of each by its name before ``_<number>``.

    Raises:
        DataError: if a name has another form, or there are no images.
    """
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
    labels = []
    for path in paths:
        match = _NAME.fullmatch(path.stem)
        if match is None or match[1] not in ACTIONS:
            raise DataError(f"{path} is not named after an action ({', '.join(ACTIONS)}) and a number; get BAR again")
        labels.append(ACTIONS.index(match[1]))
    if not paths:
        raise DataError(f"{folder} has no images; get BAR again")
    return paths, np.array(labels)
