"""Coloured digits: a class that goes with a colour in training and with any colour afterwards.

The builders are pure functions over arrays of digit-like images, so they serve MNIST, scikit-learn's digits and
anything else of that kind. The data sets are CMNIST-5 of the SPARE paper and the small coloured digits of the CPU
protocols, in two classes (PDE's P3, SPARE's S1) and five (SPARE's S2 to S4).
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.apportionment import apportion
from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.readers.idx import MNIST_FILES, read_digits, split_validation
from holdfast.data.sets.images.digits import bundled_digits, digit_parts
from holdfast.data.transforms import Normalise
from holdfast.errors import ConfigError
from holdfast.streams import data_stream

Pixel = TypeVar("Pixel", np.uint8, np.float32)

#: From a part's name, grey images and classes to coloured images and the colour of each.
Painter = Callable[[str, NDArray[np.uint8], NDArray[np.int64]], tuple[NDArray[np.uint8], NDArray[np.int64]]]


@dataclass(frozen=True)
class Palette:
    """Colours by name.

    Attributes:
        names: a name per colour.
        rgb: red, green and blue of each in 0..1.
    """

    names: tuple[str, ...]
    rgb: tuple[tuple[float, float, float], ...]

    @classmethod
    def of_hues(cls, hues: dict[str, float]) -> Palette:
        """Fully saturated colours at the given hues, from 0 to 1."""
        return cls(tuple(hues), tuple(colorsys.hsv_to_rgb(hue, 1, 1) for hue in hues.values()))

    @classmethod
    def of_hex(cls, colours: dict[str, str]) -> Palette:
        """Colours in the notation of web pages."""
        bytes_of = (bytes.fromhex(colour.removeprefix("#")) for colour in colours.values())
        return cls(tuple(colours), tuple((r / 255, g / 255, b / 255) for r, g, b in bytes_of))

    def array(self, white: int) -> NDArray[np.float64]:
        """The colours as an array (colours, 3) in which `white` is the largest value."""
        return np.array(self.rgb) * white


#: Five colours: evenly spaced hues, or those of the dissertation, whose first and last are nearly the same red.
PALETTES = {
    "distinct": Palette.of_hues({"red": 0.0, "lime": 0.2, "green": 0.4, "blue": 0.6, "violet": 0.8}),
    "dissertation": Palette.of_hex(
        {"red": "#ff0000", "lime": "#85ff00", "cyan": "#00fff3", "violet": "#6e00ff", "crimson": "#ff0018"}
    ),
}

#: LeNet-5 on coloured MNIST (SPARE, Table 9.7).
COLOURED_MNIST_RECIPE: dict[str, Any] = {
    "model": "lenet5",
    "epochs": 20,
    "batch_size": 32,
    "learning_rate": 1e-3,
    "weight_decay": 1e-3,
    "momentum": 0.9,
    "optimizer": "sgd",
}

TWO_COLOURS = Palette.of_hues({"red": 0.0, "green": 0.33})
TWO_CLASSES = ("0-4", "5-9")
FIVE_CLASSES = ("0-1", "2-3", "4-5", "6-7", "8-9")


def correlated_colours(
    labels: NDArray[np.integer],
    n_colours: int,
    correlation: float,
    rng: np.random.Generator,
    ratio: Sequence[float] = (),
) -> NDArray[np.int64]:
    """Give an exact share of every class the colour of that class, and the other colours to the rest.

    Args:
        labels: class per example, shape (n,); class c's own colour is colour c.
        n_colours: how many colours there are, at least as many as classes.
        correlation: share of each class that gets its own colour; the count is rounded.
        rng: decides who gets which.
        ratio: shares of the other colours, counted cyclically from the class's own: ``(8, 4, 2, 1)``, or
            ``(1, 1, 1, 1)`` for equal ones. Empty draws each colour uniformly at random.

    Returns:
        Colour per example, int64 of shape (n,).

    Raises:
        ConfigError: if the correlation is no share, the ratio has the wrong length, or a class has no colour.
    """
    classes = np.unique(labels)
    if not 0 <= correlation <= 1:
        raise ConfigError(f"the correlation is {correlation}; it must be from 0 to 1")
    if ratio and (len(ratio) != n_colours - 1 or min(ratio) < 0 or sum(ratio) <= 0):
        raise ConfigError(
            f"the minority ratio {tuple(ratio)} must have a share for each of the {n_colours - 1} other colours"
        )
    if len(classes) and classes.max() >= n_colours:
        raise ConfigError(f"class {classes.max()} has no colour of its own; there are {n_colours} colours")
    colours = np.empty(len(labels), np.int64)
    for label in classes:
        members = rng.permutation(np.flatnonzero(labels == label))
        others = (label + np.arange(1, n_colours)) % n_colours
        majority = round(correlation * len(members))
        rest = len(members) - majority
        drawn = np.repeat(others, apportion(rest, np.asarray(ratio, np.float64))) if ratio else rng.choice(others, rest)
        colours[members] = np.concatenate([np.full(majority, label), drawn])
    return colours


def paint_foreground(
    images: NDArray[np.uint8], colours: NDArray[np.integer], palette: NDArray[np.uint8], threshold: int = 120
) -> NDArray[np.uint8]:
    """Replace the pixels that are at least `threshold` by a colour; the others stay grey.

    Args:
        images: shape (n, height, width).
        colours: colour per image, shape (n,).
        palette: red, green and blue of each colour, shape (colours, 3).
        threshold: the smallest intensity that counts as foreground.

    Returns:
        shape (n, 3, height, width).
    """
    return np.where((images >= threshold)[:, None], palette[colours][:, :, None, None], images[:, None])


def tint(images: NDArray[Pixel], colours: NDArray[np.integer], palette: NDArray[np.float64]) -> NDArray[Pixel]:
    """Multiply every pixel by a colour.

    Args:
        images: shape (n, height, width), uint8 or float32.
        colours: colour per image, shape (n,).
        palette: red, green and blue of each colour in 0..1, shape (colours, 3).

    Returns:
        shape (n, 3, height, width), of the same type.
    """
    exact = images[:, None] * palette[colours].astype(np.float32)[:, :, None, None]
    result: NDArray[Pixel] = (np.rint(exact) if images.dtype == np.uint8 else exact).astype(images.dtype)
    return result


def shifted_copies(images: NDArray[Pixel], margin: int = 1) -> NDArray[Pixel]:
    """Every image at every place of a canvas that is wider by `margin` on each side.

    Args:
        images: shape (n, height, width).
        margin: how far an image can move in each direction.

    Returns:
        shape (n * places, height + 2 margin, width + 2 margin); the copies of an image follow each other.
    """
    n, height, width = images.shape
    side = 2 * margin + 1
    canvas = np.zeros((n, side, side, height + 2 * margin, width + 2 * margin), images.dtype)
    for down in range(side):
        for right in range(side):
            canvas[:, down, right, down : down + height, right : right + width] = images
    return canvas.reshape(n * side**2, *canvas.shape[3:])


def shifted_coloured_digits(
    images: NDArray[np.float32],
    labels: NDArray[np.integer],
    parts: Sequence[NDArray[np.int64]],
    palette: Palette,
    class_names: Sequence[str],
    *,
    correlation: float,
    ratio: Sequence[float],
    seed: int,
) -> list[Examples]:
    """Shift every image within a canvas, then tint it: correlated in the first part, at random in the others.

    The parts are chosen among the original images, so copies of one image never straddle two parts.

    Args:
        images: float32 of shape (n, height, width).
        labels: class per image.
        parts: positions of the original images, one vector per part.
        palette: a colour per class, at least.
        class_names: a name per class.
        correlation: share of each class of the first part that gets its own colour.
        ratio: shares of the other colours, see `correlated_colours`.
        seed: decides the colours.

    Returns:
        The parts; the id of an example is 9 times its image's position plus its place.
    """
    result = []
    for number, rows in enumerate(parts):
        rng = data_stream(seed, f"colours {number}")
        copies = shifted_copies(images[rows])
        places = len(copies) // len(rows)
        y = np.repeat(labels[rows], places)
        n_colours = len(palette.names)
        chosen = (
            correlated_colours(y, n_colours, correlation, rng, ratio)
            if number == 0
            else rng.integers(n_colours, size=len(y))
        )
        result.append(
            Examples.of(
                tint(copies, chosen, palette.array(1)),
                y,
                attributes=chosen,
                ids=(rows[:, None] * places + np.arange(places)).reshape(-1),
                class_names=class_names,
                attribute_names=palette.names,
            )
        )
    return result


def five_class_splits(
    data_set: DataSet, root: Path, paint: Painter, *, palette: Palette, validation: int, seed: int
) -> Splits:
    """MNIST in five classes of two digits each, with a colour in every image; the pixels stay uint8 in memory.

    Args:
        data_set: whose files are read.
        root: where they are.
        paint: given ``train``, ``validation`` or ``test``, grey images (n, 28, 28) and their classes (n,), gives the
            images in colour (n, 3, 28, 28) and the colour of each (n,).
        palette: the colours.
        validation: how many of the official training images are held out for validation.
        seed: decides which.

    Returns:
        The three parts, with positions in MNIST as ids and colours as attributes.
    """
    digits = read_digits(type(data_set), root)
    train, held_out = split_validation(digits.n_train, validation, seed)

    def part(purpose: str, rows: NDArray[np.int64]) -> Examples:
        labels = digits.labels[rows].astype(np.int64) // 2
        images, colours = paint(purpose, digits.images[rows], labels)
        return Examples.of(
            torch.from_numpy(images),
            labels,
            attributes=colours,
            ids=rows,
            class_names=FIVE_CLASSES,
            attribute_names=palette.names,
            transform=Normalise((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        )

    test = np.arange(digits.n_train, len(digits.labels))
    return Splits(data_set.name, part("train", train), part("validation", held_out), part("test", test))


@register
@dataclass(frozen=True)
class CMnist5(DataSet):
    """CMNIST-5 of the SPARE paper: MNIST digits in five classes and five colours.

    Attributes:
        correlation: share of each class in training that has the class's colour.
        palette: `distinct` hues, or those of the `dissertation`, where the first and the last are nearly the same red.
        colouring: replace the `foreground` by the colour, or multiply the colour by the `intensity`.
        threshold: the smallest intensity, of 255, that counts as foreground.
        minority_ratio: shares of the other four colours; empty draws them uniformly at random, as the paper does.
        validation: how many of the official training images are held out for validation.
        seed: decides the split and the colours.
    """

    name = "cmnist5"
    summary = "70,000 MNIST digits in 5 classes x 5 colours, 99.5 % correlated in training, 25 groups"
    files = MNIST_FILES
    recipe: ClassVar[Any] = {**COLOURED_MNIST_RECIPE, "augment": "crop", "threads": 1}

    correlation: float = 0.995
    palette: Literal["distinct", "dissertation"] = "distinct"
    colouring: Literal["foreground", "intensity"] = "foreground"
    threshold: int = 120
    minority_ratio: tuple[float, ...] = ()
    validation: int = 10_000
    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Read MNIST and colour it."""
        palette = PALETTES[self.palette]
        n_colours = len(palette.names)

        def paint(
            purpose: str, images: NDArray[np.uint8], labels: NDArray[np.int64]
        ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
            rng = data_stream(self.seed, f"colours {purpose}")
            if purpose == "train":
                colours = correlated_colours(labels, n_colours, self.correlation, rng, self.minority_ratio)
            else:
                colours = rng.integers(n_colours, size=len(labels))
            return self._coloured(images, colours, palette), colours

        return five_class_splits(self, root, paint, palette=palette, validation=self.validation, seed=self.seed)

    def _coloured(self, images: NDArray[np.uint8], colours: NDArray[np.int64], palette: Palette) -> NDArray[np.uint8]:
        if self.colouring == "intensity":
            return tint(images, colours, palette.array(1))
        return paint_foreground(images, colours, np.rint(palette.array(255)).astype(np.uint8), self.threshold)


@register
@dataclass(frozen=True)
class ColouredDigits(DataSet):
    """Two classes and two colours from the bundled digits: small, offline, and enough to fool plain training.

    Attributes:
        correlation: share of each class in training that has the class's colour.
        seed: decides the split and the colours.
    """

    name = "coloured-digits"
    summary = "1,797 bundled digits x 9 shifts in 2 classes x 2 colours, 95 % correlated; no download"
    recipe: ClassVar[Any] = {
        "model": "mlp",
        "epochs": 12,
        "batch_size": 32,
        "learning_rate": 0.01,
        "weight_decay": 1e-3,
        "momentum": 0.9,
        "optimizer": "sgd",
        "threads": 1,
    }

    correlation: float = 0.95
    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Shift and colour the bundled digits; `root` isn't looked at."""
        images, digits = bundled_digits()
        parts = shifted_coloured_digits(
            images,
            (digits >= 5).astype(np.int64),
            digit_parts(len(digits), self.seed),
            TWO_COLOURS,
            TWO_CLASSES,
            correlation=self.correlation,
            ratio=(1,),
            seed=self.seed,
        )
        return Splits(self.name, *parts)


@register
@dataclass(frozen=True)
class ColouredDigits5(DataSet):
    """Five classes and five colours from the bundled digits, with minorities of equal or unequal size.

    Attributes:
        correlation: share of each class in training that has the class's colour.
        palette: `distinct` hues, or those of the `dissertation`, where the first and the last are nearly the same red.
        minority_ratio: shares of the other four colours, such as 8 4 2 1; empty draws them uniformly at random.
        seed: decides the split and the colours.
    """

    name = "coloured-digits5"
    summary = "1,797 bundled digits x 9 shifts in 5 classes x 5 colours, 97 % correlated; no download"
    recipe: ClassVar[Any] = ColouredDigits.recipe

    correlation: float = 0.97
    palette: Literal["distinct", "dissertation"] = "distinct"
    minority_ratio: tuple[float, ...] = (1, 1, 1, 1)
    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Shift and colour the bundled digits; `root` isn't looked at."""
        images, digits = bundled_digits()
        parts = shifted_coloured_digits(
            images,
            digits // 2,
            digit_parts(len(digits), self.seed),
            PALETTES[self.palette],
            FIVE_CLASSES,
            correlation=self.correlation,
            ratio=self.minority_ratio,
            seed=self.seed,
        )
        return Splits(self.name, *parts)
