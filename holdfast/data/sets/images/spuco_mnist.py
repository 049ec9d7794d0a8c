"""SpuCoMNIST (Joshi et al. 2023): digits on a coloured background, a shortcut that can be made harder to learn.

The paper is https://arxiv.org/abs/2306.11957. Where CMNIST-5 paints the digit, here the colour replaces what is behind
it: pixels of intensity 0. A large background is easier to learn than a small one, and colour that is always in the same
place is easier than colour that moves. Use it to see how early groups can be told apart as the shortcut gets harder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Splits
from holdfast.data.readers.idx import MNIST_FILES
from holdfast.data.sets.images.coloured import COLOURED_MNIST_RECIPE, PALETTES, correlated_colours, five_class_splits
from holdfast.streams import data_stream

Difficulty = Literal[
    "magnitude-large", "magnitude-medium", "magnitude-small", "variance-low", "variance-medium", "variance-high"
]

#: Side of the square, in the top left corner, that is coloured; None for the whole image.
_SQUARES: dict[str, int | None] = {
    "magnitude-large": None, "magnitude-medium": 4, "magnitude-small": 2, "variance-low": 7,
}  # fmt: skip

#: Side of the square in which `_MOVING` pixels are drawn afresh for every image; None for the whole image.
_REGIONS: dict[str, int | None] = {"variance-medium": 14, "variance-high": None}
_MOVING = 49


def coloured_places(
    difficulty: Difficulty, n: int, shape: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Where the background of each image may be coloured.

    Args:
        difficulty: `magnitude` large, medium, small colours the whole image, or the top left 4x4 or 2x2. `variance` low
            colours the top left 7x7; medium and high colour 49 pixels, drawn for each image from the top left 14x14 or
            from all.
        n: how many images.
        shape: their height and width, at least 14 each.
        rng: decides the pixels that vary.

    Returns:
        shape (n, height, width).
    """
    places = np.zeros((n, *shape), bool)
    if difficulty in _SQUARES:
        side = _SQUARES[difficulty]
        places[:, :side, :side] = True
        return places
    region = places[:, : _REGIONS[difficulty], : _REGIONS[difficulty]]
    pixels = region.shape[1] * region.shape[2]
    chosen = np.zeros((n, pixels), bool)
    draws = rng.random((n, pixels), dtype=np.float32)
    np.put_along_axis(chosen, draws.argpartition(_MOVING, axis=1)[:, :_MOVING], True, axis=1)
    region[:] = chosen.reshape(region.shape)
    return places


def paint_background(
    images: NDArray[np.uint8], places: NDArray[np.bool_], colours: NDArray[np.integer], palette: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Replace the pixels of intensity 0 at some places by a colour; the digit stays grey.

    Args:
        images: shape (n, height, width).
        places: where the background is coloured, of the same shape.
        colours: colour per image, shape (n,).
        palette: red, green and blue of each colour, shape (colours, 3).

    Returns:
        shape (n, 3, height, width).
    """
    background = (places & (images == 0))[:, None]
    return np.where(background, palette[colours][:, :, None, None], images[:, None])


@register
@dataclass(frozen=True)
class SpucoMnist(DataSet):
    """MNIST digits in five classes on backgrounds of five colours, with a shortcut of chosen difficulty.

    Validation and test have every colour equally often, image by image in turn.

    Attributes:
        difficulty: how much of the background is coloured (magnitude), or how much the place varies (variance).
        correlation: share of each class in training that has the class's colour; the others are shared out equally.
        validation: how many of the official training images are held out for validation.
        seed: decides the split, the colours and the places that vary.
    """

    name = "spuco-mnist"
    summary = "70,000 MNIST digits in 5 classes on 5 background colours, 99.5 % correlated in training, 25 groups"
    files = MNIST_FILES
    recipe: ClassVar[Any] = {**COLOURED_MNIST_RECIPE, "threads": 1}

    difficulty: Difficulty = "magnitude-large"
    correlation: float = 0.995
    validation: int = 10_000
    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Read MNIST and colour its background."""
        palette = PALETTES["distinct"]
        n_colours = len(palette.names)

        def paint(
            purpose: str, images: NDArray[np.uint8], labels: NDArray[np.int64]
        ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
            colours = np.arange(len(labels)) % n_colours
            if purpose == "train":
                rng = data_stream(self.seed, "colours train")
                colours = correlated_colours(labels, n_colours, self.correlation, rng, (1,) * (n_colours - 1))
            shape = (images.shape[1], images.shape[2])
            rng = data_stream(self.seed, f"places {purpose}")
            places = coloured_places(self.difficulty, len(labels), shape, rng)
            return paint_background(images, places, colours, np.rint(palette.array(255)).astype(np.uint8)), colours

        return five_class_splits(self, root, paint, palette=palette, validation=self.validation, seed=self.seed)
