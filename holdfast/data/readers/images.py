"""Image files to tensors: decode, crop, resize and normalise with Pillow, one image at a time and only when needed.

What becomes of each kind of image is said in `holdfast.data.readers.decoding`; many at once are read by
`holdfast.data.readers.image_files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from holdfast.data.inputs import LazyInputs
from holdfast.data.readers.decoding import decode
from holdfast.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalise


@dataclass(frozen=True)
class ImageReader:
    """What is done to an image file: centre crop, resize to a square, centre crop again, normalise.

    Each step that is None is left out.

    Attributes:
        crop_first: side of a square cut from the middle of the original.
        resize: side of the square it is resized to (bilinear, with antialiasing).
        crop: side of a square cut from the middle at the end.
        mean: per channel.
        std: per channel.
    """

    crop_first: int | None = None
    resize: int | None = 256
    crop: int | None = 224
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def in_words(self) -> str:
        """What is done, for those who do it in another program."""
        cropped = "its middle of {0} x {0}"
        steps = [
            "8-bit RGB",
            "" if self.crop_first is None else cropped.format(self.crop_first),
            "" if self.resize is None else f"resized to {self.resize} x {self.resize} (bilinear, stretched)",
            "" if self.crop is None else cropped.format(self.crop),
            "divided by 255",
            f"minus {self.mean} and divided by {self.std}, channel by channel",
        ]
        return ", ".join(filter(None, steps))

    def __call__(self, path: Path) -> Tensor:
        """Read one image as float32 of shape (3, height, width).

        Raises:
            DataError: if the file is missing, truncated or no image.
        """
        pixels = torch.from_numpy(self.pixels(path)).unsqueeze(0)
        return Normalise(self.mean, self.std)(pixels)[0]

    @property
    def side(self) -> int | None:
        """Of the squares that images become; None where they keep their own height and width."""
        return next((side for side in (self.crop, self.resize, self.crop_first) if side is not None), None)

    def inputs(self, paths: Sequence[Path], workers: int) -> LazyInputs:
        """The images at `paths` as inputs that are read when gathered, by `workers` threads."""
        shape = None if self.side is None else (3, self.side, self.side)
        return LazyInputs(lambda position: self(paths[position]), len(paths), workers, shape)

    def pixels(self, path: Path) -> NDArray[np.uint8]:
        """Read one image as bytes of shape (3, height, width), cropped and resized, not normalised.

        Raises:
            DataError: if the file is missing, truncated or no image.
        """
        return np.array(self.picture(path)).transpose(2, 0, 1)

    def picture(self, path: Path) -> Image.Image:
        """Read one image as 8-bit RGB, cropped and resized.

        Raises:
            DataError: if the file is missing, truncated or no image.
        """
        image = decode(path)
        if self.crop_first is not None:
            image = centre_crop(image, self.crop_first)
        if self.resize is not None:
            image = image.resize((self.resize, self.resize), Image.Resampling.BILINEAR)
        if self.crop is not None:
            image = centre_crop(image, self.crop)
        return image


def centre_crop(image: Image.Image, side: int) -> Image.Image:
    """Cut a square from the middle; what lies outside of a smaller image is black."""
    left, top = round((image.width - side) / 2), round((image.height - side) / 2)
    return image.crop((left, top, left + side, top + side))
