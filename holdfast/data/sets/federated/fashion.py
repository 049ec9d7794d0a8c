"""Fashion-MNIST over 500 clients of five classes each: the partition of Ditto's Table 8, drawn as its program draws it.

The paper is https://arxiv.org/abs/2012.04221. Sizes are LogNormal(3, 1) + 10 scaled to 60,000; client u owns the
classes u to u+4 modulo 10 with proportions from LogNormal(1, 1). Both come from NumPy's legacy generator under seed
233, so every client has the published counts whatever the seed of the run, which only decides what is held out for
validation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import Rows, deal_in_turn, hold_out_tenth, rolling_classes
from holdfast.data.readers.idx import FASHION_MNIST_FILES, FashionMnist, read_digits
from holdfast.errors import ConfigError
from holdfast.streams import data_stream

_LEGACY_SEED = 233


def published_counts(clients: int = 500, classes: int = 5, total: int = 60_000) -> tuple[Rows, Rows]:
    """How many training and test images each client has of each of its classes, two arrays (clients, classes)."""
    legacy = np.random.RandomState(_LEGACY_SEED)
    raw = legacy.lognormal(3, 1, clients) + 10
    sizes = total * raw / sum(raw)
    raw = legacy.lognormal(1, 1, (clients, classes))
    shares = raw / raw.cumsum(1)[:, -1:]
    wanted = shares * sizes[:, None]
    return wanted.astype(np.int64) + 1, (wanted / 6).astype(np.int64) + 1


def standardise_pixels(images: NDArray[np.uint8], n_train: int) -> NDArray[np.float32]:
    """Each pixel minus its mean over the first `n_train` images, by its standard deviation + 0.001, as float32."""
    pixels = images.astype(np.float32)
    mean, deviation = pixels[:n_train].mean(0), pixels[:n_train].std(0)
    standardised: NDArray[np.float32] = (pixels - mean) / (deviation + np.float32(0.001))
    return standardised


@register_federation
@dataclass(frozen=True)
class FederatedFashion(FederatedData):
    """Clothes over 500 clients, as in Ditto's Table 8.

    The official test images stay the clients' test data; the last tenth of a client's shuffled training images is its
    validation data. (The paper says 72/8/20, which its program doesn't do.)

    Attributes:
        clients: how many of the 500 take part, the first ones; each has the same images whatever the number.
    """

    name = "fashion-mnist"
    summary = "Fashion-MNIST over 500 clients of 5 classes each, 31 to 1,378 training images (Ditto, Table 8)"
    files = FASHION_MNIST_FILES
    recipe: ClassVar[Any] = TrainingRecipe("cnn-fashion", 0.05, 16, rounds=5000, cohort=10)

    clients: int = 500

    def __post_init__(self) -> None:
        if not 1 <= self.clients <= 500:
            raise ConfigError(f"the partition has 500 clients and {self.clients} are wanted; give 1 to 500")

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read the idx files and deal them out; images become float32 of shape (1, 28, 28), standardised by pixel."""
        digits = read_digits(FashionMnist, root)
        images = torch.from_numpy(standardise_pixels(digits.images, digits.n_train)).unsqueeze(1)
        labels = digits.labels.astype(np.int64)
        train_counts, test_counts = (counts[: self.clients] for counts in published_counts())
        owned = rolling_classes(len(train_counts), train_counts.shape[1], 10)
        train = deal_in_turn(labels[: digits.n_train], owned, train_counts)
        test = deal_in_turn(labels[digits.n_train :], owned, test_counts)
        training, held_out = hold_out_tenth(train.shuffled(data_stream(seed, "federated-fashion")))
        targets = torch.from_numpy(labels)
        return Clients(
            training.gather(images, targets),
            held_out.gather(images, targets),
            test.gather(images[digits.n_train :], targets[digits.n_train :]),
            classes=10,
        ).check()
