"""Image files to tensors: open, crop, resize and normalise with Pillow, one image at a time and only when needed."""

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
from holdfast.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalise
from holdfast.errors import DataError


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

    def __call__(self, path: Path) -> Tensor:
        """Read one image as float32 of shape (3, height, width).

        Raises:
            DataError: if the file is missing, truncated or no image.
        """
        pixels = torch.from_numpy(self.pixels(path)).unsqueeze(0)
        return Normalise(self.mean, self.std)(pixels)[0]

    def inputs(self, paths: Sequence[Path], workers: int) -> LazyInputs:
        """The images at `paths` as inputs that are read when gathered, by `workers` threads."""
        side = self.resize if self.crop is None else self.crop
        shape = None if side is None else (3, side, side)
        return LazyInputs(lambda position: self(paths[position]), len(paths), workers, shape)

    def pixels(self, path: Path) -> NDArray[np.uint8]:
        """Read one image as bytes of shape (3, height, width), cropped and resized, not normalised.

        Raises:
            DataError: if the file is missing, truncated or no image.
        """
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except FileNotFoundError as error:
            raise DataError(
                f"there is no image {path}; correct the path in the metadata, or fetch the images"
            ) from error
        except (OSError, SyntaxError, ValueError) as error:
            raise DataError(f"the image {path} can't be decoded ({error}); replace it or drop its row") from error
        if self.crop_first is not None:
            image = centre_crop(image, self.crop_first)
        if self.resize is not None:
            image = image.resize((self.resize, self.resize), Image.Resampling.BILINEAR)
        if self.crop is not None:
            image = centre_crop(image, self.crop)
        return np.array(image).transpose(2, 0, 1)


def centre_crop(image: Image.Image, side: int) -> Image.Image:
    """Cut a square from the middle; what lies outside of a smaller image is black."""
    left, top = round((image.width - side) / 2), round((image.height - side) / 2)
    return image.crop((left, top, left + side, top + side))
