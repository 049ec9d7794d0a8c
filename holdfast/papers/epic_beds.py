"""What trials of attacks stand on: data, the attacker's network, what victims start from and how they train.

``shapes`` and ``fashion-mnist`` are beds of transfer learning, where victims train a new head on the attacker's
features. On ``shapes-scratch`` they train everything, as they do on ``cifar10-40`` and ``cifar10-200``, which are the
document's own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from holdfast.data import catalog
from holdfast.data.cifar import CIFAR10_MEAN, CIFAR10_STD
from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.data.transforms import Compose, Normalise, RandomFlip
from holdfast.models.registry import build
from holdfast.poisoning.attacks import SETTINGS, Brewing, Normalised, RandomShift, in_pixels, train_surrogate
from holdfast.poisoning.attacks.gradient_matching import SHIFT_AND_FLIP
from holdfast.poisoning.attacks.pixels import pixels_at
from holdfast.poisoning.attacks.victims import Scenario
from holdfast.poisoning.bed import shape_cnn, shape_splits
from holdfast.primitives.streams import torch_stream
from holdfast.training.policy import Augmentation
from holdfast.training.settings import Training

_SURROGATE = 1000  # the attacker's seed, apart from those of trials


@dataclass(frozen=True, eq=False)
class Bed:
    """What trials stand on.

    Attributes:
        splits: the clean data, in pixels.
        surrogate: the attacker's network, trained on it.
        start: what a victim starts from, by seed; in transfer learning the surrogate, whose head is made new.
        victim: how a victim trains.
        scenario: what of it trains.
        poisons: how many training images are poisoned.
        brewing: how the attacker searches.
        seen_through: the augmentation that gradient matching looks through.
    """

    splits: Splits
    surrogate: nn.Module
    start: Callable[[int], nn.Module]
    victim: Training
    scenario: Scenario
    poisons: int
    brewing: Brewing
    seen_through: Augmentation | None = None


_EXTRACTOR = Training(
    epochs=24, batch_size=64, learning_rate=0.05, nesterov=True, weight_decay=5e-4, schedule="cosine",
    select_by="accuracy", augment="flip", threads=1,
)  # fmt: skip
_HEAD = Training(
    epochs=40, batch_size=64, learning_rate=0.05, weight_decay=5e-4, nesterov=True, schedule="steps",
    milestones=(25 / 40, 35 / 40), select_by="accuracy", threads=1,
)  # fmt: skip
_BREWING = Brewing(epsilon=16 / 255, steps=150, step_size=0.01)


def _shapes(examples: int, poisons: int, *, noise: float = 0.02, epochs: int = 40, augment: str = "none") -> Bed:
    splits = shape_splits(examples, 800, noise=noise)
    extractor = train_surrogate(shape_cnn(0), splits.train, _EXTRACTOR)
    head = replace(_HEAD, epochs=epochs, augment=augment)  # type: ignore[arg-type]
    return Bed(splits, extractor, lambda _: extractor, head, "transfer", poisons, _BREWING)


def _fashion(examples: int, poisons: int, *, elsewhere: int = 20_000) -> Bed:
    """Fashion-MNIST, halved to 14 x 14 and in three channels, so that poisons have colours to move in.

    The features come from other images than victims train on. At 28 x 28 in grey Bullseye Polytope fooled nobody.
    """
    loaded = catalog.load("fashion-mnist")
    order = torch.randperm(len(loaded.train), generator=torch_stream(0, "part"))
    own = loaded.train.subset(order[elsewhere : elsewhere + examples].sort().values)
    splits = Splits("fashion-mnist", *map(_halved, (own, loaded.validation, _some(loaded.test, 2000))))
    others = _halved(loaded.train.subset(order[:elsewhere].sort().values))
    extractor = train_surrogate(shape_cnn(0), others, replace(_EXTRACTOR, epochs=10))
    brewing = replace(_BREWING, epsilon=32 / 255)
    return Bed(splits, extractor, lambda _: extractor, replace(_HEAD, epochs=20), "transfer", poisons, brewing)


def _shapes_scratch(examples: int, poisons: int, *, epochs: int = 24, steps: int = 60) -> Bed:
    splits, training = shape_splits(examples, 800), replace(_EXTRACTOR, epochs=epochs)
    surrogate = train_surrogate(shape_cnn(_SURROGATE), splits.train, training)
    brewing, seen_through = replace(_BREWING, steps=steps, step_size=0.02), Compose((RandomShift(2), RandomFlip()))
    return Bed(splits, surrogate, shape_cnn, training, "scratch", poisons, brewing, seen_through)


def _cifar10(settings: Training) -> Bed:
    """ResNet-18 on all of CIFAR-10, 500 poisons, a budget of 8."""
    loaded = catalog.load("cifar10")
    parts = (in_pixels(part) for part in (loaded.train, loaded.validation, loaded.test))
    splits = Splits("cifar10", *parts)

    def network(seed: int) -> nn.Module:
        bare = build("resnet18-cifar", splits.train.input_shape, splits.train.n_classes, seed=seed)
        return Normalised(bare, Normalise(CIFAR10_MEAN, CIFAR10_STD))

    surrogate = train_surrogate(network(_SURROGATE), splits.train, SETTINGS["scratch"])
    return Bed(splits, surrogate, network, settings, "scratch", 500, Brewing(restarts=8), SHIFT_AND_FLIP)


_BEDS: Mapping[str, Callable[..., Bed]] = {
    "shapes": _shapes,
    "fashion-mnist": _fashion,
    "shapes-scratch": _shapes_scratch,
    "cifar10-40": lambda: _cifar10(SETTINGS["scratch"]),
    "cifar10-200": lambda: _cifar10(SETTINGS["scratch-200"]),
}


@lru_cache(maxsize=4)
def bed(name: str, **options: Any) -> Bed:
    """A bed by name, with its surrogate trained; once per process."""
    return _BEDS[name](**options)


def _some(examples: Examples, count: int) -> Examples:
    """A random part of a set."""
    return examples.subset(torch.randperm(len(examples), generator=torch_stream(0, "tests"))[:count].sort().values)


def _halved(examples: Examples) -> Examples:
    """Images of half the side in three channels, of 8 bits as images are."""
    images = pixels_at(examples, torch.arange(len(examples)))
    halved = (F.avg_pool2d(images, 2) * 255).round() / 255
    return replace(examples, inputs=TensorInputs(halved.expand(-1, 3, -1, -1).contiguous()))
