"""Transforms of whole batches: pixels to floats, and the random ones of training, which draw from a given generator.

Each is a frozen value called as ``transform(batch)`` or ``transform(batch, generator)``; a batch has shape
(n, channels, height, width). The deterministic ones belong to a data set and are applied whenever a batch is gathered;
the random ones belong to training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Transform(Protocol):
    """A function of a batch that may draw from a generator."""

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """The batch, transformed."""
        ...


@dataclass(frozen=True)
class ScalePixels:
    """Pixels 0..255 to floats 0..1."""

    def __call__(self, batch: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Scale a uint8 batch."""
        if batch.dtype != torch.uint8:
            raise DataError(f"ScalePixels takes uint8 pixels and got {batch.dtype}; floats need no scaling")
        return batch / 255


@dataclass(frozen=True)
class Normalise:
    """Subtract a mean and divide by a standard deviation per channel, both in units where white is 1.

    Attributes:
        mean: a mean per channel.
        std: a standard deviation per channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, batch: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Normalise uint8 pixels (scaled on the way) or floats, in one multiplication and one subtraction."""
        factor, shift = _affine(self, 255 if batch.dtype == torch.uint8 else 1, batch.device)
        return (batch * factor).sub_(shift)


@cache
def _affine(transform: Normalise, white: int, device: torch.device) -> tuple[Tensor, Tensor]:
    mean = torch.tensor(transform.mean, device=device).view(-1, 1, 1)
    std = torch.tensor(transform.std, device=device).view(-1, 1, 1)
    return 1 / (white * std), mean / std


@dataclass(frozen=True)
class RandomFlip:
    """Mirror each image left to right with some probability.

    Attributes:
        probability: how likely a mirror image is.
    """

    probability: float = 0.5

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Mirror some images of the batch."""
        chosen = torch.rand(len(batch), generator=generator) < self.probability
        return torch.where(chosen.to(batch.device).view(-1, 1, 1, 1), batch.flip(-1), batch)


@dataclass(frozen=True)
class RandomCrop:
    """Cut a window out of each image at a random place, after widening the image by a margin.

    A margin of zeros is black only in pixels that aren't normalised yet; after `Normalise` it is the mean colour.

    Attributes:
        size: side of the window; None keeps height and width.
        padding: width of the margin.
        margin: what the margin shows, the mirrored image or zeros.
    """

    size: int | None = None
    padding: int = 4
    margin: Literal["reflect", "zero"] = "zero"

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Crop every image at its own place."""
        rows, rows_inside = self._window(batch, batch.shape[2], generator)
        columns, columns_inside = self._window(batch, batch.shape[3], generator)
        images = torch.arange(len(batch), device=batch.device).view(-1, 1, 1)
        cut = batch.permute(0, 2, 3, 1)[images, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        if self.margin == "zero":
            cut = cut * (rows_inside[:, None, :, None] & columns_inside[:, None, None, :])
        return cut.contiguous()

    def _window(self, batch: Tensor, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Where each pixel of the window comes from along one side, and whether that is inside the image."""
        size = self.size or length
        room = length + 2 * self.padding - size
        if room < 0 or (self.margin == "reflect" and self.padding >= length):
            raise ConfigError(
                f"a window of {size} with a {self.margin} margin of {self.padding} can't be cut from {length} pixels"
            )
        start = torch.randint(room + 1, (len(batch), 1), generator=generator) - self.padding
        wanted = (start + torch.arange(size)).to(batch.device)
        inside = (wanted >= 0) & (wanted < length)
        mirrored = wanted.abs()
        return torch.where(mirrored < length, mirrored, 2 * (length - 1) - mirrored).clamp_(0, length - 1), inside


@dataclass(frozen=True)
class Compose:
    """Several transforms, one after the other.

    Attributes:
        steps: the transforms in order.
    """

    steps: tuple[Transform, ...]

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Apply every step."""
        for step in self.steps:
            batch = step(batch, generator)
        return batch
