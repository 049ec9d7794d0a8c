"""The networks of personalization with spurious features: two strided convolutions, batch norm, one wide hidden layer.

Padding 1 and a slope of 0.2 are what the printed sizes of the maps leave open; with them CNN 28 has 25,869,898
parameters for ten classes, CNN 64 67,263,892 for twenty and 67,190,146 for two.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.shapes import expect_shape

_SLOPE = 0.2


class StridedCNN(nn.Module):
    """Convolutions of 4 x 4 with stride 2, each with batch normalisation and leaky ReLU, and a hidden layer.

    Args:
        input_shape: (channels, height, width), with sides of at least 4.
        n_classes: how many logits.
        filters: of the two convolutions.
        hidden: width of the hidden layer.

    Example:
        >>> model = StridedCNN((3, 28, 28), 10, (64, 128), 4096)
        >>> sum(parameter.numel() for parameter in model.parameters())
        25869898
    """

    def __init__(self, input_shape: tuple[int, ...], n_classes: int, filters: tuple[int, int], hidden: int) -> None:
        super().__init__()
        channels, height, width = expect_shape("a strided CNN", input_shape, "channels", "height", "width")
        if min(height, width) < 4:
            raise ConfigError(f"images of {height}x{width} pixels are too small for a strided CNN; resize them")
        self.conv1 = nn.Conv2d(channels, filters[0], 4, stride=2, padding=1)
        self.norm1 = nn.BatchNorm2d(filters[0])
        self.conv2 = nn.Conv2d(filters[0], filters[1], 4, stride=2, padding=1)
        self.norm2 = nn.BatchNorm2d(filters[1])
        self.dense = nn.Linear(filters[1] * (height // 4) * (width // 4), hidden)
        self.head = nn.Linear(hidden, n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, hidden)."""
        maps = F.leaky_relu(self.norm1(self.conv1(inputs)), _SLOPE)
        maps = F.leaky_relu(self.norm2(self.conv2(maps)), _SLOPE)
        return F.relu(self.dense(maps.flatten(1)))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
