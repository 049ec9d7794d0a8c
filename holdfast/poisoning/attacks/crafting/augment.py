"""Random shifts and flips through which gradients flow: the victim augments, so poisons must survive it.

`holdfast.data.transforms` has the victim's own crops and flips, which can be differentiated too and are exact copies of
its draws. A shift by a fraction of a pixel (Geiping et al. 2021) covers a continuum of them and is smoother to search
through.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError


@dataclass(frozen=True)
class RandomShift:
    """Shift each image by its own random fraction of pixels, with a mirrored margin, by bilinear interpolation.

    Attributes:
        most: pixels in each direction. Published attacks on 32 x 32 images use 8, twice the victim's crops.
    """

    most: float = 8.0

    def __post_init__(self) -> None:
        if not self.most >= 0:
            raise ConfigError(f"the largest shift is {self.most}; give 0 or more pixels")

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Shift every image; gradients flow to the batch."""
        shifts = (2 * torch.rand(len(batch), 2, generator=generator) - 1) * self.most
        return shift(batch, shifts.to(batch))


def shift(batch: Tensor, shifts: Tensor) -> Tensor:
    """Images whose pixel (row, column) shows (row + down, column + right) of the original, mirrored at the border.

    Args:
        batch: shape (n, channels, height, width).
        shifts: down and right of each image, in pixels, shape (n, 2).

    Returns:
        Shape of `batch`.
    """
    n, _, height, width = batch.shape
    rows = torch.arange(height, device=batch.device) + shifts[:, :1]
    columns = torch.arange(width, device=batch.device) + shifts[:, 1:]
    down = _to_grid(rows, height)[:, :, None].expand(n, height, width)
    right = _to_grid(columns, width)[:, None, :].expand(n, height, width)
    grid = torch.stack([right, down], 3)
    return F.grid_sample(batch, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def _to_grid(places: Tensor, length: int) -> Tensor:
    """Pixel centres to the interval from -1 to 1 that `grid_sample` speaks in."""
    return 2 * places / max(length - 1, 1) - 1
