"""CelebA by celebrity: blond hair goes with women in one environment and with men in the other.

A client is twenty celebrities; the class is gender. Environment 0 has the client's blond women, environment 1 its blond
men, and each has half of the others, of both genders alike (Personalized FL with spurious features, Section 6.1).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import Partition, Rows
from holdfast.data.readers.images import ImageReader
from holdfast.data.remote_files import RemoteFile
from holdfast.data.sets.federated.environments import draw_environments, in_disjoint_environments
from holdfast.data.sets.images.celeba import LIST_ATTRIBUTES, read_attributes, signs
from holdfast.errors import DataError
from holdfast.streams import data_stream

_CELEBRITIES, _IMAGES = 9343, 200_288
_AT_LEAST = 5
_MORE_THAN = 5


@register_federation
@dataclass(frozen=True)
class CelebrityClients(FederatedData):
    """Women and men, some of them blond.

    Attributes:
        stage: of training: in a `federation` every client draws its environment; for `personalization` there are only
            clients with more than five blond women and more than five blond men, all in environment 0.
        celebrities: on each client; a celebrity is on one client only.
        clients: how many are kept; 0 keeps all, 467 of them.
        check_counts: refuse data that is not the published one.
        workers: threads that decode images.
    """

    name = "celeba-blond"
    summary = (
        "CelebA over clients of 20 celebrities: gender, with blond women in one environment and blond men in the other"
    )
    files = (
        RemoteFile("celeba/identity_CelebA.txt", md5="32bd1bd63d3c78cd57e08160ec5ed1e2"),
        LIST_ATTRIBUTES,
        RemoteFile("celeba/img_align_celeba"),
    )
    by_hand = (
        "agree to the licence at https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and put identity_CelebA.txt, "
        "list_attr_celeba.txt and the folder img_align_celeba into celeba/"
    )
    recipe: ClassVar[Any] = TrainingRecipe(
        "cnn-64", 1e-4, 64, rounds=500, cohort=5, local_steps=0, local_epochs=5, optimizer="adam", finetune_epochs=10
    )

    stage: Literal["federation", "personalization"] = "federation"
    celebrities: int = 20
    clients: int = 0
    check_counts: bool = True
    workers: int = 2

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read identities and attributes, form clients, decode their images."""
        path = self.locate(root, "celeba/list_attr_celeba.txt", "celeba/list_attr_celeba.csv")
        table = read_attributes(path, ("Blond_Hair", "Male"))
        blond, male = (signs(path, name, table).astype(bool) for name in ("Blond_Hair", "Male"))
        identity = read_identities(self.locate(root, "celeba/identity_CelebA.txt"), table["image_id"].tolist())
        rng = data_stream(seed, "celeba-blond")
        owners = group_celebrities(identity, self.celebrities, rng)
        if self.check_counts:
            _check_counts(identity)
        environment = split_environments(owners, blond, male, rng)
        count = int(owners.max()) + 1
        counts = [np.bincount(owners[rows & (owners >= 0)], minlength=count) for rows in (blond & ~male, blond & male)]
        if self.stage == "personalization":
            chosen = np.flatnonzero((counts[0] > _MORE_THAN) & (counts[1] > _MORE_THAN))
            own = np.zeros(len(chosen), np.int64)
        else:
            chosen = np.arange(count)
            own = draw_environments(count, 0.5, rng)
        chosen, own = chosen[: self.clients or None], own[: self.clients or None]
        if not len(chosen):
            raise DataError(
                f"no client has more than {_MORE_THAN} blond women and as many blond men; put more celebrities on each"
            )
        renamed = np.full(count + 1, -1, np.int64)
        renamed[chosen] = np.arange(len(chosen))
        holders = renamed[owners]
        mine = np.append(own, -1)[holders]
        here, there = (
            Partition.of_owners(np.where(inside, holders, -1), len(chosen))
            for inside in (environment == mine, environment == 1 - mine)
        )
        images = [root / "celeba" / "img_align_celeba" / str(name) for name in table["image_id"]]
        reader = image_reader(images, ImageReader(crop_first=178, resize=64, crop=None), self.workers)
        return in_disjoint_environments(here, there, reader, male.astype(np.int64), rng, classes=2)


def read_identities(path: Path, images: list[str]) -> Rows:
    """The celebrity of each image, from lines of an image name and a number.

    Raises:
        DataError: if a line is damaged or an image has none.
    """
    identities = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            raise DataError(f"line {number} of {path} is {line!r}; it must be an image name and a number")
        identities[words[0]] = int(words[1])
    missing = [name for name in images if name not in identities]
    if missing:
        raise DataError(f"{path} has no identity for {missing[0]} ({len(missing)} images in all); get it again")
    return np.array([identities[name] for name in images])


def group_celebrities(identity: Rows, size: int, rng: np.random.Generator) -> Rows:
    """The client of each image: `size` celebrities each, in random order; -1 for those with fewer than five images.

    Celebrities that don't fill a client are left out.
    """
    people, inverse, counts = np.unique(identity, return_inverse=True, return_counts=True)
    eligible = rng.permutation(np.flatnonzero(counts >= _AT_LEAST))
    clients = len(eligible) // size
    if not clients:
        raise DataError(f"{len(eligible)} celebrities with at least {_AT_LEAST} images don't fill a client of {size}")
    owner = np.full(len(people), -1, np.int64)
    owner[eligible[: clients * size]] = np.repeat(np.arange(clients), size)
    return owner[inverse]


def split_environments(owners: Rows, blond: Rows, male: Rows, rng: np.random.Generator) -> Rows:
    """The environment of each image: blond women 0, blond men 1, half of the others of each client and gender each."""
    environment = np.where(male, 1, 0)
    for gender in (False, True):
        others = np.flatnonzero(~blond & (male == gender) & (owners >= 0))
        mixed = rng.permutation(others)
        ordered = mixed[np.argsort(owners[mixed], kind="stable")]
        first = np.searchsorted(owners[ordered], owners[ordered])
        environment[ordered] = (np.arange(len(ordered)) - first + gender) % 2
    return environment


def image_reader(paths: list[Path], reader: ImageReader, workers: int) -> Callable[[Rows], Tensor]:
    """Rows to float32 images in 0..1, decoded by some threads."""

    def read(rows: Rows) -> Tensor:
        with ThreadPoolExecutor(max(1, workers)) as threads:
            pixels = list(threads.map(lambda row: reader.pixels(paths[row]), rows.tolist()))
        side = reader.crop or reader.resize or 0
        stacked = np.stack(pixels) if pixels else np.empty((0, 3, side, side), np.uint8)
        return torch.from_numpy(stacked).float().div_(255)

    return read


def _check_counts(identity: Rows) -> None:
    counts = np.unique(identity, return_counts=True)[1]
    sizes = counts[counts >= _AT_LEAST]
    if (len(sizes), int(sizes.sum())) != (_CELEBRITIES, _IMAGES):
        raise DataError(
            f"{len(sizes)} celebrities have at least {_AT_LEAST} images, {sizes.sum()} in all; CelebA has "
            f"{_CELEBRITIES} with {_IMAGES}: get identity_CelebA.txt again, or pass check_counts=False"
        )
