"""What trials of attacks stand on: data, the attacker's network, what victims start from and how they train.

``shapes`` and ``fashion-mnist`` are beds of transfer learning, where victims train a new head on the attacker's
features. On ``shapes-scratch`` they train everything, as they do on ``cifar10-40`` and ``cifar10-200``, which are the
document's own settings. ``digits`` and ``digits-scratch`` are these two on bundled images, for golden cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.data.sets.images.cifar import CIFAR10_MEAN, CIFAR10_STD
from holdfast.data.transforms import Compose, Normalise, RandomFlip
from holdfast.models.registry import build
from holdfast.papers.common.cells import pinned_splits
from holdfast.papers.engine.pins import pinned
from holdfast.poisoning.attacks import Brewing, Normalised, RandomShift, in_pixels, train_surrogate
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.poisoning.attacks.crafting.victims import Scenario
from holdfast.poisoning.bed import shape_cnn, shape_splits
from holdfast.streams import torch_stream
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


_EXTRACTOR = pinned(
    Training, epochs=24, batch_size=64, learning_rate=0.05, nesterov=True, weight_decay=5e-4, schedule="cosine",
    select_by="accuracy", augment="flip", threads=1,
)  # fmt: skip
_HEAD = pinned(
    Training, epochs=40, batch_size=64, learning_rate=0.05, weight_decay=5e-4, nesterov=True, schedule="steps",
    milestones=(25 / 40, 35 / 40), select_by="accuracy", threads=1,
)  # fmt: skip
_BREWING = pinned(Brewing, epsilon=16 / 255, steps=150, step_size=0.01)

#: Section 4.3: 40 epochs from scratch on CIFAR-10, and the longer training.
_SCRATCH = pinned(
    Training, epochs=40, batch_size=128, learning_rate=0.1, nesterov=True, weight_decay=5e-4, decay_all=False,
    schedule="steps", milestones=(25 / 40, 35 / 40), select_by="accuracy", augment="crop-flip",
)  # fmt: skip
_SCRATCH_200 = replace(_SCRATCH, epochs=200, milestones=(0.5, 0.75))


def _shapes(
    examples: int,
    poisons: int,
    *,
    tests: int = 800,
    noise: float = 0.02,
    epochs: int = 40,
    augment: str = "none",
    learning: int = 24,
    rate: float = 0.05,
    steps: int = 150,
    bound: int = 16,
) -> Bed:
    """Rendered shapes; the features come from the same images.

    Args:
        examples: images to train on.
        poisons: how many of them are poisoned.
        tests: images to test on.
        noise: of their pixels.
        epochs: of a victim's head.
        augment: what the victim does to images.
        learning: epochs of the features.
        rate: learning rate of both.
        steps: of the attacker's search.
        bound: how far a pixel may move, of 255.
    """
    splits = pinned(shape_splits, train=examples, test=tests, noise=noise)
    learned = replace(_EXTRACTOR, epochs=learning, learning_rate=rate)
    extractor = train_surrogate(pinned(shape_cnn, seed=0), splits.train, learned)
    head = replace(_HEAD, epochs=epochs, augment=augment, learning_rate=rate)  # type: ignore[arg-type]
    brewing = replace(_BREWING, steps=steps, epsilon=bound / 255)
    return Bed(splits, extractor, lambda _: extractor, head, "transfer", poisons, brewing)


def _halves(
    data: str,
    examples: int,
    poisons: int,
    *,
    elsewhere: int = 20_000,
    tests: int = 2000,
    learning: int = 10,
    epochs: int = 20,
    steps: int = 150,
) -> Bed:
    """Grey images, halved and in three channels, so that poisons have colours to move in.

    The features come from other images than victims train on. At 28 x 28 in grey Bullseye Polytope fooled nobody.
    """
    loaded = pinned_splits(data)
    order = torch.randperm(len(loaded.train), generator=torch_stream(0, "part"))
    own = loaded.train.subset(order[elsewhere : elsewhere + examples].sort().values)
    splits = Splits(data, *map(_halved, (own, loaded.validation, _some(loaded.test, tests))))
    others = _halved(loaded.train.subset(order[:elsewhere].sort().values))
    extractor = train_surrogate(pinned(shape_cnn, seed=0), others, replace(_EXTRACTOR, epochs=learning))
    brewing = replace(_BREWING, epsilon=32 / 255, steps=steps)
    return Bed(splits, extractor, lambda _: extractor, replace(_HEAD, epochs=epochs), "transfer", poisons, brewing)


def _shapes_scratch(
    examples: int, poisons: int, *, tests: int = 800, epochs: int = 24, rate: float = 0.05, steps: int = 60
) -> Bed:
    splits = pinned(shape_splits, train=examples, test=tests)
    training = replace(_EXTRACTOR, epochs=epochs, learning_rate=rate)
    surrogate = train_surrogate(pinned(shape_cnn, seed=_SURROGATE), splits.train, training)
    brewing = replace(_BREWING, steps=steps, step_size=0.02)
    seen_through = Compose((RandomShift(2), pinned(RandomFlip)))

    def start(seed: int) -> nn.Module:
        return pinned(shape_cnn, seed=seed)

    return Bed(splits, surrogate, start, training, "scratch", poisons, brewing, seen_through)


def _from_scratch(
    data: str,
    model: str,
    normalise: Normalise,
    settings: Training,
    *,
    attacker: Training = _SCRATCH,
    poisons: int = 500,
    restarts: int = 8,
    steps: int = 250,
    bound: int = 8,
) -> Bed:
    """A network on all of a data set, normalised inside the model; 500 poisons and a bound of 8 in the document."""
    loaded = pinned_splits(data)
    parts = (in_pixels(part) for part in (loaded.train, loaded.validation, loaded.test))
    splits = Splits(data, *parts)

    def network(seed: int) -> nn.Module:
        bare = build(model, splits.train.input_shape, splits.train.n_classes, seed=seed, weights=None)
        return Normalised(bare, normalise)

    surrogate = train_surrogate(network(_SURROGATE), splits.train, attacker)
    seen_through = Compose((pinned(RandomShift), pinned(RandomFlip)))
    brewing = pinned(Brewing, restarts=restarts, steps=steps, epsilon=bound / 255)
    return Bed(splits, surrogate, network, settings, "scratch", poisons, brewing, seen_through)


_COLOURS = Normalise(CIFAR10_MEAN, CIFAR10_STD)

_BEDS: Mapping[str, Callable[..., Bed]] = {
    "shapes": _shapes,
    "fashion-mnist": partial(_halves, "fashion-mnist"),
    "shapes-scratch": _shapes_scratch,
    "cifar10-40": partial(_from_scratch, "cifar10", "resnet18-cifar", _COLOURS, _SCRATCH),
    "cifar10-200": partial(_from_scratch, "cifar10", "resnet18-cifar", _COLOURS, _SCRATCH_200),
    "digits": partial(_halves, "digits"),
    "digits-scratch": partial(
        _from_scratch,
        "digits",
        "cnn-half",
        Normalise((0.5,), (0.25,)),
        replace(_SCRATCH, epochs=2, learning_rate=0.01, threads=1),
        attacker=replace(_SCRATCH, epochs=1, learning_rate=0.01, threads=1),
    ),
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
