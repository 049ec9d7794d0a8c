"""Objects painted in a colour that goes with their label in one environment and with another label in the other.

MNIST's digits and the objects of Coil20, over 50 clients of five classes each (Personalized FL with spurious features,
Section 6.1 and Appendix D). Both environments show the same test images, so only the colour differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from holdfast.data.archives import zip_contents
from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import Rows
from holdfast.data.readers.decoding import decode
from holdfast.data.readers.idx import MNIST_FILES, Mnist, read_digits
from holdfast.data.remote_files import RemoteFile
from holdfast.data.sets.federated.environments import (
    Scheme,
    balanced_slots,
    colour_table,
    draw_environments,
    in_own_environment,
)
from holdfast.data.sets.images.coloured import TWO_COLOURS, Palette, tint
from holdfast.data.sets.images.digits import bundled_digits
from holdfast.errors import ConfigError, DataError
from holdfast.streams import data_stream

TEN_COLOURS = Palette.of_hues({f"hue {ten}": ten / 10 for ten in range(10)})

_COIL_OBJECTS, _COIL_POSES = 20, 72
_COIL_LARGEST = 1024  # pixels of a side; published are 128
_COIL_NAME = re.compile(r"(?:.*/)?obj(\d+)__(\d+)\.png")


@dataclass(frozen=True)
class Painted(FederatedData):
    """What painted sets have in common.

    Attributes:
        clients: how many.
        classes: of each client.
        scheme: how colours go with labels, see `Scheme`.
        share: of clients in environment 0; one half eliminates the correlation over all clients, with ``swap2``.
        counterexamples: share of training examples painted as in the other environment, which methods that need to see
            some are given.
    """

    clients: int = 50
    classes: int = 5
    scheme: Scheme = "swap2"
    share: float = 0.5
    counterexamples: float = 0.0

    def painted(self, images: NDArray[np.generic], labels: Rows, seed: int, white: int = 255) -> Clients:
        """Deal grey images (n, height, width) out and paint them; inputs are float32 in 0..1, three channels."""
        if self.clients < 1:
            raise ConfigError(f"clients is {self.clients}; give at least 1")
        rng = data_stream(seed, f"{self.name} clients")
        partition = balanced_slots(labels, self.clients, self.classes, rng)
        environments = draw_environments(self.clients, self.share, rng)
        classes = int(labels.max()) + 1
        colours = colour_table(self.scheme, classes, self.clients, rng)
        palette = (TWO_COLOURS if self.scheme == "swap2" else TEN_COLOURS).array(1)

        def view(rows: Rows, owners: Rows, environment: Rows) -> Tensor:
            grey = images[rows].astype(np.float32) / white
            return torch.from_numpy(tint(grey, colours[owners, environment, labels[rows]], palette))

        return in_own_environment(
            partition, labels, environments, view, rng, classes=classes, counterexamples=self.counterexamples
        )


@register_federation
@dataclass(frozen=True)
class PaintedMnist(Painted):
    """Digits, red or green.

    Attributes:
        source: all 70,000 digits, or the 10,000 of the test files, which train in minutes on two cores.
    """

    name = "painted-mnist"
    summary = "MNIST painted red and green over 50 clients of 5 classes, each in one of two environments"
    files = MNIST_FILES
    recipe: ClassVar[Any] = TrainingRecipe(
        "cnn-28",
        1e-4,
        64,
        rounds=500,
        cohort=5,
        local_steps=0,
        local_epochs=5,
        optimizer="adam",
        finetune_epochs=5,
    )

    source: Literal["all", "t10k"] = "all"

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read the idx files, deal them out and paint them."""
        digits = read_digits(Mnist, root)
        first = 0 if self.source == "all" else digits.n_train
        return self.painted(digits.images[first:], digits.labels[first:].astype(np.int64), seed)


@register_federation
@dataclass(frozen=True)
class PaintedDigits(Painted):
    """The 1,797 small digits that come with scikit-learn, red or green: for trying things out, without a download."""

    name = "painted-digits"
    summary = "scikit-learn's digits painted red and green over 10 clients of 5 classes, no download"
    recipe: ClassVar[Any] = TrainingRecipe(
        "cnn-28-small",
        1e-3,
        16,
        rounds=40,
        cohort=5,
        local_steps=0,
        local_epochs=2,
        optimizer="adam",
        finetune_epochs=5,
    )

    clients: int = 10

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Deal the digits out and paint them."""
        images, labels = bundled_digits()
        return self.painted(images, labels, seed, white=1)


@register_federation
@dataclass(frozen=True)
class PaintedCoil(Painted):
    """Twenty objects in 72 poses, red or green, 64x64."""

    name = "painted-coil20"
    summary = "Coil20 painted red and green over 50 clients of 5 objects, each in one of two environments"
    files = (RemoteFile("coil-20-proc.zip", also=("coil20/coil-20-proc.zip", "coil-20-proc")),)
    by_hand = (
        "get the processed archive coil-20-proc.zip of Columbia University's object image library (COIL-20, not the "
        "unprocessed one) and put it into the data root"
    )
    recipe: ClassVar[Any] = TrainingRecipe(
        "cnn-64",
        2e-4,
        8,
        rounds=500,
        cohort=5,
        local_steps=0,
        local_epochs=5,
        optimizer="adam",
        finetune_epochs=10,
    )

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read the archive, or the folder that it unpacks to, deal the images out and paint them."""
        path = self.locate(root, "coil-20-proc.zip", "coil20/coil-20-proc.zip", "coil-20-proc")
        images, labels = read_coil(path)
        return self.painted(images, labels, seed)


def read_coil(path: Path, side: int = 64) -> tuple[NDArray[np.uint8], Rows]:
    """The images of Coil20's processed archive, resized, and which object each shows.

    Args:
        path: coil-20-proc.zip, or the folder that it unpacks to.
        side: of the images.

    Returns:
        uint8 of shape (1440, side, side), by object and pose, and int64 of shape (1440,) from 0.

    Raises:
        DataError: if images are missing or damaged.
    """
    images: dict[tuple[int, int], NDArray[np.uint8]] = {}
    try:
        for name, content in _png_files(path):
            if match := _COIL_NAME.fullmatch(name):
                picture = decode(content, f"{name} of {path}", remedy="get it again")
                if max(picture.size) > _COIL_LARGEST:
                    raise DataError(f"{name} in {path} has {picture.size} pixels; use the processed archive")
                grey = picture.convert("L").resize((side, side), Image.Resampling.BILINEAR)
                images[int(match[1]), int(match[2])] = np.array(grey)
    except OSError as error:
        raise DataError(f"{path} can't be read ({error}); get it again") from error
    wanted = [(number, pose) for number in range(1, _COIL_OBJECTS + 1) for pose in range(_COIL_POSES)]
    missing = [f"obj{number}__{pose}.png" for number, pose in wanted if (number, pose) not in images]
    if missing or len(images) != len(wanted):
        what = f"lacks {missing[0]}" if missing else "has images besides"
        raise DataError(
            f"{path} has {len(images)} of Coil20's {len(wanted)} images and {what}; use the processed archive"
        )
    return np.stack([images[key] for key in wanted]), np.repeat(np.arange(_COIL_OBJECTS), _COIL_POSES)


def _png_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents, from a folder or from an archive without unpacking it."""
    if path.is_dir():
        return ((file.name, file.read_bytes()) for file in sorted(path.rglob("*.png")))
    return zip_contents(path, ".png")
