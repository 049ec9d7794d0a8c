"""The files of the public poisoning benchmark: its fixed setups, and packages of poisons made elsewhere.

Schwarzschild et al., "Just How Toxic is Data Poisoning?" (ICML 2021). A setup names a target of the test set and base
images of the training set; 100 of them make attacks comparable. A package is a folder with ``poisons.pickle`` (images
and labels), ``base_indices.pickle`` and ``target.pickle`` (an image and its class, for a backdoor also the patch and
its place); Sleeper Agent's have a ``source.pickle`` with many patched images instead. They are pickles, of which
nothing is ever called, see `pickled_data` beside this module. Indices are those of the official data sets, which are
the ids of training examples here and positions in a whole test set.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import DataError
from holdfast.poisoning.attacks.crafting.aims import Aim, Backdoor, Targets
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet, positions_of
from holdfast.poisoning.attacks.public_benchmark.pickled_data import read_pickled

#: The benchmark's budget is 8/255, and it allows one level more because image files round.
TOLERATED = 9 / 255


@dataclass(frozen=True, eq=False)
class Setup:
    """Who shall be taken for what, and by whose help.

    Attributes:
        target_class: true class of the target.
        target_index: its position in the test set.
        base_class: what it shall be taken for.
        base_ids: training images that may be perturbed, int64 of shape (p,).
    """

    target_class: int
    target_index: int
    base_class: int
    base_ids: Tensor

    def targets(self, test: Examples) -> Targets:
        """The target, from the whole test set in pixels."""
        if not 0 <= self.target_index < len(test) or int(test.labels[self.target_index]) != self.target_class:
            raise DataError(
                f"example {self.target_index} of the test set is not of class {self.target_class}; give the "
                "benchmark's whole test set in its official order"
            )
        return Targets.of(test, [self.target_index], self.base_class)

    def bases(self, train: Examples) -> Tensor:
        """Positions of the base images."""
        return positions_of(train, self.base_ids)


def read_setups(path: Path | str) -> list[Setup]:
    """The setups of a file such as ``cifar10_from_scratch.pickle``.

    Args:
        path: the file.

    Returns:
        The setups in the file's order.

    Raises:
        DataError: if the file isn't one of setups.
    """
    content = read_pickled(Path(path))
    keys = ("target class", "target index", "base class", "base indices")
    if not isinstance(content, list) or not all(isinstance(one, dict) and one.keys() >= set(keys) for one in content):
        raise DataError(f"{path} holds no setups; give a list of dictionaries with {', '.join(keys)}")
    numbers = [[_whole(one[key]) for key in keys[:3]] for one in content]
    return [
        Setup(target, index, base, _indices(one["base indices"]))
        for (target, index, base), one in zip(numbers, content, strict=True)
    ]


def read_package(folder: Path | str, train: Examples, epsilon: float | None = TOLERATED) -> PoisonedSet:
    """The poisons of a package.

    Args:
        folder: where its three files are.
        train: the clean training set that the indices refer to, in pixels: poisons are stored as whole images.
        epsilon: largest absolute perturbation that is accepted; None for attacks with a soft budget.

    Returns:
        The poisoned set.

    Raises:
        DataError: if a file is missing or foreign, a base isn't in the training set, labels differ from the bases'
            labels, or a perturbation is over `epsilon`.
    """
    folder = Path(folder)
    poisons = read_pickled(folder / "poisons.pickle")
    ids = _indices(read_pickled(folder / "base_indices.pickle"))
    if not isinstance(poisons, list) or not poisons or len(poisons) != len(ids):
        raise DataError(f"{folder} has no list of one poison for each of its {len(ids)} base indices")
    images, labels = _images_and_labels(folder, poisons, lengths=range(2, 5))
    positions = positions_of(train, ids)
    if bool((labels != labels[0]).any()) or not torch.equal(labels, train.labels[positions]):
        raise DataError(f"the poisons of {folder} don't have the labels of their bases; it isn't a clean-label package")
    bases = pixels_at(train, positions)
    if bases.shape != images.shape:
        raise DataError(f"the poisons of {folder} have shape {tuple(images.shape[1:])}, not {tuple(bases.shape[1:])}")
    perturbations = ((images - bases) * 255).round() / 255
    largest = float(perturbations.abs().max())
    if epsilon is not None and largest > epsilon + 1e-5:
        raise DataError(
            f"a poison of {folder} differs from its base by {largest * 255:.0f} levels, over {epsilon * 255:.0f}; "
            "check that it is for this data set, or give its own epsilon"
        )
    aim = _aim(folder, int(labels[0]))
    return PoisonedSet("package", ids, perturbations, aim, epsilon, settings={"folder": folder.name})


def _aim(folder: Path, adversarial_class: int) -> Aim:
    shown = folder / "source.pickle"
    content = read_pickled(shown if shown.exists() else folder / "target.pickle")
    several = content if isinstance(content, list) else [content]
    images, labels = _images_and_labels(folder, several, lengths=(2, 4))
    if len(several[0]) == 4:
        place = _indices(several[0][3]).tolist()
        if len(place) != 2:
            raise DataError(f"the patch of {folder} has {len(place)} coordinates; give left and top")
        pasted = Backdoor(_pixels(several[0][2]), int(labels[0]), adversarial_class, (place[1], place[0]))
        images = pasted.paste(images, torch.Generator())
    return Targets(images, labels, adversarial_class)


def _images_and_labels(folder: Path, pairs: Sequence[Any], lengths: Collection[int]) -> tuple[Tensor, Tensor]:
    """Pixels (n, channels, height, width) and classes (n,) of what a package lists."""
    if not pairs or not all(isinstance(one, (tuple, list)) and len(one) in lengths for one in pairs):
        raise DataError(f"a poison or target of {folder} isn't an image with its class, nor a list of such")
    images = [_pixels(one[0]) for one in pairs]
    if any(image.shape != images[0].shape for image in images):
        raise DataError(f"the images of {folder} have several shapes; a package is for one data set")
    return torch.stack(images), torch.tensor([_whole(one[1]) for one in pairs])


def _pixels(image: Any) -> Tensor:
    """An image of the package, bytes (height, width, channels) or floats (channels, height, width), as pixels."""
    if not isinstance(image, np.ndarray) or image.ndim != 3 or not np.isfinite(image).all():
        raise DataError("an image of the package isn't an image; packages hold Pillow images or tensors")
    if image.dtype == np.uint8:
        return torch.from_numpy(image).permute(2, 0, 1).to(torch.float32) / 255
    return torch.from_numpy(image).to(torch.float32)


def _indices(value: Any) -> Tensor:
    if isinstance(value, (list, tuple)):
        return torch.tensor([_whole(one) for one in value], dtype=torch.int64)
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
        raise DataError("base indices aren't a list of whole numbers")
    return torch.from_numpy(value.astype(np.int64))


def _whole(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise DataError("a class or an index of the benchmark's file isn't a whole number") from error
    if not 0 <= number < 2**63:
        raise DataError("a class or an index of the benchmark's file is below 0 or has more than 63 bits")
    return number
