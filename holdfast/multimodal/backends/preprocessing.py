"""What CLIP does to an image before it looks: shorter side resized, middle square cut out, channels normalised.

Written with Pillow and torch alone, because torchvision is a heavy neighbour that not every machine can load. Bytes go
through Pillow, as they did when the public weights were trained; floats through torch, which differs by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from holdfast.data.inputs import LazyInputs
from holdfast.data.readers.decoding import decode, to_rgb
from holdfast.data.transforms import Normalise
from holdfast.errors import DataError

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

_MOST_PIXELS = 2**26


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a model; the same in training and in testing, without augmentation.

    Attributes:
        size: side of the square.
        mean: per channel.
        std: per channel.
    """

    size: int = 224
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD

    def __call__(self, image: Image.Image | Tensor) -> Tensor:
        """One image as float32 of shape (3, size, size).

        Args:
            image: a Pillow image, uint8 pixels (3, height, width), or floats from 0 to 1 of that shape.
        """
        return Normalise(self.mean, self.std)(self.square(image).unsqueeze(0))[0]

    def square(self, image: Image.Image | Tensor) -> Tensor:
        """The middle square, resized and not normalised: uint8 or float, as the image is, of shape (3, size, size).

        Boxes of a detector and maps of an explanation refer to it.
        """
        if isinstance(image, Tensor):
            if image.ndim != 3 or image.shape[0] != 3:
                raise DataError(f"an image has shape {tuple(image.shape)}; give (3, height, width)")
            if image.is_floating_point():
                return self._float_square(image)
            image = Image.fromarray(image.permute(1, 2, 0).cpu().numpy())
        image = to_rgb(image, "given")
        height, width = self._resized(image.height, image.width)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        image = image.crop((left, top, left + self.size, top + self.size))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def batch(self, images: Sequence[Image.Image | Tensor] | Tensor) -> Tensor:
        """Several images as float32 of shape (n, 3, size, size)."""
        return torch.stack([self(image) for image in images])

    def inputs(self, paths: Sequence[Path], workers: int = 0) -> LazyInputs:
        """Image files as inputs of `Examples`, read when they are gathered."""
        shape = (3, self.size, self.size)
        return LazyInputs(lambda at: self(decode(paths[at])), len(paths), workers, shape)

    def pictures(self, batch: Tensor) -> Tensor:
        """What was normalised, back as floats from 0 to 1, (n, 3, size, size)."""
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (batch.cpu() * std + mean).clamp(0, 1)

    def boxes(self, boxes: Tensor, width: int, height: int) -> Tensor:
        """Where boxes of an image lie in its square.

        Args:
            boxes: left, top, right, bottom in pixels of the image, (n, 4).
            width: of the image.
            height: of the image.

        Returns:
            The same as fractions of the square, cut at its rim, (n, 4).
        """
        tall, wide = self._resized(height, width)
        scale = torch.tensor([wide / width, tall / height] * 2)
        start = torch.tensor([(wide - self.size) // 2, (tall - self.size) // 2] * 2)
        return ((boxes * scale - start) / self.size).clamp(0, 1)

    def _float_square(self, image: Tensor) -> Tensor:
        height, width = self._resized(image.shape[1], image.shape[2])
        if (height, width) != image.shape[1:]:
            image = F.interpolate(image.unsqueeze(0), (height, width), mode="bicubic", antialias=True)[0].clamp(0, 1)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return image[:, top : top + self.size, left : left + self.size]

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        longer = int(self.size * max(height, width) / min(height, width))
        if longer * self.size > _MOST_PIXELS:
            raise DataError(f"an image of {width} x {height} pixels is too narrow to resize to {self.size}; drop it")
        return (longer, self.size) if height > width else (self.size, longer)
