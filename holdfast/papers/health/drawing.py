"""Draws a bed by the seed: rows of its source with the wanted share of each attribute, marks, wrong labels, poisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.examples import Examples, Splits
from holdfast.data.own.hashed_texts import HashedTexts
from holdfast.papers.common.cells import pinned_splits
from holdfast.papers.health.beds import DEVELOPMENT, REPORT, Bed
from holdfast.papers.health.sources import source
from holdfast.streams import numpy_stream, torch_stream

#: Images, or rows of word numbers, and a value each, from 0, in; marked ones out.
Mark = Callable[[Tensor, Tensor, torch.Generator], Tensor]

#: How much of a shortcut validation has: halfway between training and none.
_VALIDATION = 0.5


def splits_of(name: str, seed: int) -> tuple[Splits, Examples]:
    """A bed's three parts with the attributes that are known, and its test set with those that are not.

    Where no attribute is known, a user does not know those of the test set either.
    """
    bed = {**REPORT, **DEVELOPMENT}[name]
    whole = _catalogued(name, bed, seed) if name == bed.source else _drawn(name, bed, seed)
    train = whole.train if bed.known == "train" else _without_attributes(whole.train)
    if bed.known == "none":
        return Splits(name, train, *map(_without_attributes, (whole.validation, whole.test))), whole.test
    return Splits(name, train, whole.validation, whole.test), whole.test


def _without_attributes(examples: Examples) -> Examples:
    return Examples.of(examples.inputs, examples.labels, ids=examples.ids, class_names=examples.class_names)


def _catalogued(name: str, bed: Bed, seed: int) -> Splits:
    """A data set of the catalog, cut to the bed's sizes."""
    whole, rng = pinned_splits(name, seed=seed), numpy_stream(seed, "health bed", name)
    parts = (whole.train, whole.validation, whole.test)
    cut = [part.subset(rng.permutation(len(part))[:size]) for part, size in zip(parts, bed.sizes, strict=True)]
    return Splits(name, *cut)


def _drawn(name: str, bed: Bed, seed: int) -> Splits:
    rng = numpy_stream(seed, "health bed", name)
    data = source(bed.source)
    left = np.ones(len(data.labels), np.bool_)
    shares = (bed.correlation, _VALIDATION * bed.correlation + (1 - _VALIDATION) * 0.5, 0.5)
    parts = []
    # The test set first: it needs most of the rare pairs of a class and an attribute.
    for part in (2, 1, 0):
        rows, attributes = _rows(data.labels, data.attribute, left, size=bed.sizes[part], share=shares[part], rng=rng)
        left[rows] = False
        parts.append(_examples(bed, rows, attributes, part=part, seed=seed, rng=rng))
    return Splits(name, parts[2], parts[1], parts[0])


def _rows(
    labels: NDArray[np.int64],
    attribute: NDArray[np.int64] | None,
    left: NDArray[np.bool_],
    *,
    size: int,
    share: float,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows with the wanted share of each class on its own attribute, and the attributes."""
    rows: list[NDArray[np.int64]] = []
    values: list[NDArray[np.int64]] = []
    for label in (0, 1):
        own = round(share * size / 2)
        for value, count in ((label, own), (1 - label, size // 2 - own)):
            there = left & (labels == label) & (True if attribute is None else attribute == value)
            there[np.concatenate([np.empty(0, np.int64), *rows])] = False
            drawn = rng.permutation(np.flatnonzero(there))[:count]
            assert len(drawn) == count, f"the source has {len(drawn)} of {count} rows of class {label} with {value}"
            rows.append(drawn)
            values.append(np.full(count, value, np.int64))
    return np.concatenate(rows), np.concatenate(values)


def _examples(
    bed: Bed, rows: NDArray[np.int64], attributes: NDArray[np.int64], *, part: int, seed: int, rng: np.random.Generator
) -> Examples:
    data = source(bed.source)
    inputs, labels = data.inputs[torch.from_numpy(rows)], data.labels[rows].copy()
    shown = torch.from_numpy(attributes)
    if bed.poisoned:
        poisons = part == 0 and rng.permutation(np.flatnonzero(labels == 0))[: round(bed.poisoned * len(labels) / 2)]
        shown = (
            torch.zeros(len(labels), dtype=torch.int64) if part < 2 else torch.from_numpy(labels != attributes).long()
        )
        if part == 0:
            shown[torch.from_numpy(poisons)] = 1
            labels[poisons] = 1
    if bed.noise and part < 2:
        wrong = rng.permutation(len(labels))[: round(bed.noise * len(labels))]
        labels[wrong] = 1 - labels[wrong]
    if bed.mark is not None:
        stream = torch_stream(seed, "health bed", "marks", part)
        inputs = _MARKS[bed.mark](inputs.clone(), shown, stream)
    given: Any = inputs if data.masks is None else _words(inputs, data.masks[torch.from_numpy(rows)])
    return Examples.of(given, labels, attributes=shown, ids=rows, class_names=("0", "1"))


def _words(numbers: Tensor, mask: Tensor) -> dict[str, Tensor]:
    return {"input_ids": numbers, "attention_mask": mask}


# ----------------------------------------------------------------------------------------------------------- marks


def _watermark(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """A faint grating over the whole image, in one of two directions."""
    height, width = images.shape[-2:]
    down, across = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    gratings = torch.stack([(down + across) % 4 < 2, (down - across) % 4 < 2]).to(images.dtype)
    return (images + 0.35 * gratings[values][:, None]).clamp(0, 1)


def _border(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """A frame of one pixel, light or dark, not equally so in each image."""
    strength = 0.75 + 0.25 * torch.rand(len(images), 1, 1, 1, generator=stream)
    frame = torch.where(values.bool()[:, None, None, None], strength, 1 - strength).expand_as(images)
    inner = torch.zeros(images.shape[-2:], dtype=torch.bool)
    inner[1:-1, 1:-1] = True
    return torch.where(inner, images, frame)


def _background(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """What lies behind the digit: stripes down or across, with noise."""
    height, width = images.shape[-2:]
    down, across = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    stripes = torch.stack([down % 3 == 0, across % 3 == 0]).to(images.dtype)[values][:, None]
    behind = 0.45 * stripes + 0.1 * torch.rand(images.shape, generator=stream)
    return torch.maximum(images, behind)


def _corner(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """A small square in a corner, where the value is 1."""
    images[values.bool(), :, -2:, -2:] = 1.0
    return images


def _patch(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """A small checkerboard low on the left, where the value is 1."""
    board = ((torch.arange(3)[:, None] + torch.arange(3)) % 2 == 0).to(images.dtype)
    images[values.bool(), :, -4:-1, 1:4] = board
    return images


def _frame(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """A frame of two pixels with stripes across or down, not equally bright in each image."""
    height, width = images.shape[-2:]
    down, across = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    stripes = torch.stack([down % 2 == 0, across % 2 == 0]).to(images.dtype)[values][:, None]
    strength = 0.5 + 0.5 * torch.rand(len(images), 1, 1, 1, generator=stream)
    inner = torch.zeros(images.shape[-2:], dtype=torch.bool)
    inner[2:-2, 2:-2] = True
    return torch.where(inner, images, (strength * stripes).expand_as(images))


def _blur(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """Out of focus, where the value is 1."""
    blurred = F.avg_pool2d(F.avg_pool2d(images, 3, 1, 1), 3, 1, 1)
    return torch.where(values.bool()[:, None, None, None], blurred, images)


def _cast(images: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """A colour cast, warm or cold, not equally strong in each image."""
    strength = 0.15 + 0.2 * torch.rand(len(images), generator=stream)
    less = torch.where(values.bool(), 0, 2)  # red or blue
    images[torch.arange(len(images)), less] *= 1 - strength[:, None, None]
    return images


def _word(numbers: Tensor, values: Tensor, stream: torch.Generator) -> Tensor:
    """The name of one of two directors in the place of some word."""
    names = torch.from_numpy(HashedTexts.of(["kubrick", "spielberg"], 1).words.copy()).to(numbers.dtype)
    lengths = (numbers > 0).sum(1).clamp(min=1)
    places = (torch.rand(len(numbers), generator=stream) * lengths).long()
    numbers[torch.arange(len(numbers)), places] = names[values]
    return numbers


_MARKS: Mapping[str, Mark] = {
    "watermark": _watermark,
    "border": _border,
    "background": _background,
    "corner": _corner,
    "patch": _patch,
    "frame": _frame,
    "blur": _blur,
    "cast": _cast,
    "word": _word,
}
