"""A convolutional network small enough to study training itself: three convolutions, about 24,000 parameters.

CREST's CPU protocol uses it with group norm and with batch norm, because that turned out to decide whether chosen
mini-batches help.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.models.shapes import expect_shape

Normalisation = Literal["group", "batch"]

_GROUPS = 4


class PocketCNN(nn.Module):
    """Convolutions of 3 x 3 with 16, 32 and 64 filters, halved after the first two, then averaged over the image.

    Args:
        input_shape: (channels, height, width).
        n_classes: how many logits.
        normalisation: after each convolution: over groups of channels of one image, or over the batch.

    Example:
        >>> sum(parameter.numel() for parameter in PocketCNN((3, 32, 32), 10, "group").parameters())
        24346
    """

    def __init__(self, input_shape: tuple[int, ...], n_classes: int, normalisation: Normalisation) -> None:
        super().__init__()
        channels, _, _ = expect_shape("the pocket CNN", input_shape, "channels", "height", "width")
        widths = (channels, 16, 32, 64)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1, bias=False) for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(
            nn.GroupNorm(_GROUPS, width) if normalisation == "group" else nn.BatchNorm2d(width) for width in widths[1:]
        )
        self.head = nn.Linear(widths[-1], n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, 64)."""
        maps = inputs
        for place, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            maps = F.relu(norm(convolution(maps)))
            if place < 2:
                maps = F.max_pool2d(maps, 2)
        return maps.mean((2, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
