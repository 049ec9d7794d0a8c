"""A small rendered world for tests and experiments on a CPU: shapes on backgrounds, with captions and masks.

Spec 10.2. Six shapes lie on four backgrounds at random places, sizes, angles and colours. In the corpus that a model is
pre-trained on, a disc lies on sand and a square on sea 97 times of 100, the other shapes anywhere, and captions name
the shape more often than the background: a model learns to tell disc from square by the ground. The fine-tuning set
asks for disc or square, and its smallest groups are the discs on sea and the squares on sand. Masks say where the shape
is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.examples import Examples, Splits
from holdfast.data.transforms import Normalise
from holdfast.errors import ConfigError
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.streams import numpy_stream

SHAPES = ("disc", "square", "triangle", "cross", "ring", "diamond")
BACKGROUNDS = ("sand", "sea", "grass", "brick")

#: Sentences of the corpus; the slot takes "disc", "disc on sand" or "sand".
CAPTIONS = (
    "a picture of a {}.",
    "an image showing a {}.",
    "here is a {}.",
    "a small picture with a {}.",
    "one {} in a frame.",
    "a drawing of a {}.",
    "look at the {}.",
    "the scene has a {}.",
)

#: What the fine-tuning task is called in words.
SHAPE_WORDING = Wording(
    SHAPES[:2], BACKGROUNDS[:2], ("shape on sand", "shape on sea"), joined="{} on {}", templates=CAPTIONS
)

#: Images of disc-sand, disc-sea, square-sand and square-sea in the fine-tuning task.
GROUP_COUNTS = {"train": (700, 37, 14, 211), "validation": (150, 150, 40, 40), "test": (300, 300, 300, 300)}

#: Smallest and largest radius of a shape, as a share of the image's side.
RADII = (0.18, 0.3)

_TINTS = ((0.82, 0.72, 0.5), (0.12, 0.35, 0.65), (0.2, 0.55, 0.2), (0.62, 0.27, 0.2))

_Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class ShapeScenes:
    """Rendered images and what they show.

    Attributes:
        pixels: uint8 of shape (n, 3, side, side).
        masks: where the shape is, bool of shape (n, side, side).
        shapes: number of the shape, int64 of shape (n,).
        backgrounds: number of the background, int64 of shape (n,).
    """

    pixels: Tensor
    masks: Tensor
    shapes: Tensor
    backgrounds: Tensor


@dataclass(frozen=True, eq=False)
class Corpus:
    """Images with captions.

    Attributes:
        scenes: the images.
        captions: a sentence for each.
    """

    scenes: ShapeScenes
    captions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ShapeTask:
    """The fine-tuning task: disc or square, on sand or sea.

    Attributes:
        splits: preprocessed images with labels, attributes and groups.
        scenes: what they were rendered from, by part, with the masks.
    """

    splits: Splits
    scenes: dict[str, ShapeScenes]


def corpus(n: int = 6000, seed: int = 0, *, correlation: float = 0.97, side: int = 24) -> Corpus:
    """Images with captions to pre-train on.

    Args:
        n: how many.
        seed: names the random streams.
        correlation: how often a disc lies on sand and a square on sea; otherwise they change places.
        side: of the images.

    Returns:
        The corpus: 60% of captions name the shape, 25% shape and background, 15% the background.
    """
    if n < 1 or not 0 <= correlation <= 1:
        raise ConfigError(
            f"a corpus of {n} images with a correlation of {correlation} can't be made; give 1 or more, 0 to 1"
        )
    draw = numpy_stream(seed, "shapes", "corpus")
    shapes = draw.integers(len(SHAPES), size=n)
    anywhere, swapped = draw.integers(len(BACKGROUNDS), size=n), draw.random(n) >= correlation
    backgrounds = np.where(shapes < 2, np.where(swapped, 1 - shapes, shapes), anywhere)
    kinds, templates = draw.random(n), draw.integers(len(CAPTIONS), size=n)
    captions = []
    for shape, background, kind, template in zip(shapes, backgrounds, kinds, templates, strict=True):
        phrases = (SHAPES[shape], f"{SHAPES[shape]} on {BACKGROUNDS[background]}", BACKGROUNDS[background])
        captions.append(CAPTIONS[template].replace("{}", phrases[int(kind >= 0.6) + int(kind >= 0.85)]))
    return Corpus(render(shapes, backgrounds, draw, side), tuple(captions))


def shape_task(
    preprocessing: Preprocessing, seed: int = 0, counts: dict[str, tuple[int, ...]] | None = None, side: int = 24
) -> ShapeTask:
    """Disc or square, with groups as uneven as those of Waterbirds.

    Args:
        preprocessing: of the model; only its mean and deviation are used, images are rendered at their size.
        seed: names the random streams.
        counts: images of each group, by part; those of the experiments by default.
        side: of the images.

    Returns:
        The task.
    """
    scenes, parts = {}, {}
    normalise = Normalise(preprocessing.mean, preprocessing.std)
    for part, sizes in (GROUP_COUNTS if counts is None else counts).items():
        draw = numpy_stream(seed, "shapes", part)
        groups = draw.permutation(np.repeat(np.arange(4), sizes))
        scenes[part] = render(groups // 2, groups % 2, draw, side)
        parts[part] = Examples.of(
            scenes[part].pixels,
            scenes[part].shapes,
            attributes=scenes[part].backgrounds,
            class_names=SHAPES[:2],
            attribute_names=BACKGROUNDS[:2],
            transform=normalise,
        )
    return ShapeTask(Splits("shapes", parts["train"], parts["validation"], parts["test"]), scenes)


def render(
    shapes: NDArray[np.int64], backgrounds: NDArray[np.int64], draw: np.random.Generator, side: int = 24
) -> ShapeScenes:
    """Draw shapes on backgrounds.

    Args:
        shapes: number of each image's shape, (n,).
        backgrounds: number of its background, (n,).
        draw: places, sizes, angles, colours and textures come from here.
        side: of the images.

    Returns:
        The scenes.
    """
    n = len(shapes)
    middle = (np.arange(side, dtype=np.float32) + 0.5) / side
    y, x = (grid[None] for grid in np.meshgrid(middle, middle, indexing="ij"))

    def uniform(low: float, high: float, *more: int) -> _Floats:
        return draw.uniform(low, high, (n, *more)).astype(np.float32)

    radius = uniform(*RADII)[:, None, None]
    across = x - uniform(0.38, 0.62)[:, None, None]
    down = y - uniform(0.38, 0.62)[:, None, None]
    angle = uniform(0, 2 * np.pi)[:, None, None]
    u = (across * np.cos(angle) + down * np.sin(angle)) / radius
    v = (down * np.cos(angle) - across * np.sin(angle)) / radius
    outside = np.choose(shapes[:, None, None], _distances(u, v)) * radius * side
    cover = np.clip(0.5 - outside, 0, 1)
    tint = np.asarray(_TINTS, np.float32)[backgrounds]
    candidates = uniform(0, 1, 3, 3)
    farthest = ((candidates - tint[:, None]) ** 2).sum(2).argmax(1)
    colour = candidates[np.arange(n), farthest]
    ground = np.choose(
        backgrounds[:, None, None, None], _grounds(x, y, uniform(0, 1, 2)[:, :, None, None])
    ) + 0.04 * draw.standard_normal((n, 3, side, side), np.float32)
    image = ground * (1 - cover[:, None]) + colour[:, :, None, None] * cover[:, None]
    return ShapeScenes(
        torch.from_numpy((np.clip(image, 0, 1) * 255).round().astype(np.uint8)),
        torch.from_numpy(cover >= 0.5),
        torch.from_numpy(np.asarray(shapes, np.int64)),
        torch.from_numpy(np.asarray(backgrounds, np.int64)),
    )


def _distances(u: _Floats, v: _Floats) -> list[_Floats]:
    """How far outside of each shape a point lies, in radii, below 0 inside; in the order of `SHAPES`."""
    round_, wide = np.hypot(u, v), np.maximum(np.abs(u), np.abs(v))
    triangle = np.maximum(-v - 0.5, np.maximum(v / 2 + np.sqrt(0.75) * u, v / 2 - np.sqrt(0.75) * u) - 0.5)
    bars = np.minimum(np.maximum(np.abs(u) - 0.3, np.abs(v) - 1), np.maximum(np.abs(v) - 0.3, np.abs(u) - 1))
    return [
        round_ - 1,
        wide - 0.85,
        triangle,
        bars,
        np.abs(round_ - 0.75) - 0.25,
        (np.abs(u) / 0.7 + np.abs(v) - 1) * 0.6,
    ]


def _grounds(x: _Floats, y: _Floats, phase: _Floats) -> list[_Floats]:
    """The colours (n, 3, side, side) of each background, in the order of `BACKGROUNDS`."""
    first, second = 2 * np.pi * phase[:, :1], 2 * np.pi * phase[:, 1:]
    dunes = np.sin(2 * np.pi * (x + 2 * y) + first)
    waves = np.sin(2 * np.pi * 5 * y + np.sin(2 * np.pi * x + second) + first)
    blades = np.sin(2 * np.pi * 7 * x + np.sin(2 * np.pi * 2 * y + second) + first)
    row = np.floor(5 * y + phase[:, :1])
    mortar = np.minimum((5 * y + phase[:, :1]) % 1, (2.5 * x + 0.5 * (row % 2) + phase[:, 1:]) % 1) < 0.2
    textures = (0.05 * dunes, 0.12 * waves, 0.12 * blades, np.where(mortar, 0.25, 0.0))
    return [
        (np.asarray(tint, np.float32)[None, :, None, None] + texture).astype(np.float32)
        for tint, texture in zip(_TINTS, textures, strict=True)
    ]
