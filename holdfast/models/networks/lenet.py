"""LeNet-5 (LeCun et al. 1998) with ReLU and max pooling: the network of the coloured-digits studies (SPARE, PDE).

The paper is https://doi.org/10.1109/5.726791.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.shapes import expect_shape

_SMALLEST = 12


class LeNet5(nn.Module):
    """Two convolutions (6 and 16 filters of 5x5, the first padded by 2), then 120, 84 and `n_classes` units.

    Args:
        input_shape: (channels, height, width), 28x28 pixels give the original's 400 flattened values.
        n_classes: how many logits.

    Example:
        >>> import torch
        >>> model = LeNet5((3, 28, 28), 5)
        >>> model.features(torch.zeros(2, 3, 28, 28)).shape, model(torch.zeros(2, 3, 28, 28)).shape
        (torch.Size([2, 84]), torch.Size([2, 5]))
    """

    def __init__(self, input_shape: tuple[int, ...] = (1, 28, 28), n_classes: int = 10) -> None:
        super().__init__()
        channels, height, width = expect_shape("LeNet-5", input_shape, "channels", "height", "width")
        if min(height, width) < _SMALLEST:
            raise ConfigError(
                f"LeNet-5 needs images of at least 12x12 pixels and was given {height}x{width}; resize them"
            )
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * _pooled(height) * _pooled(width), 120)
        self.fc2 = nn.Linear(120, 84)
        self.head = nn.Linear(84, n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, 84)."""
        hidden = F.max_pool2d(F.relu(self.conv1(inputs)), 2)
        hidden = F.max_pool2d(F.relu(self.conv2(hidden)), 2).flatten(1)
        return F.relu(self.fc2(F.relu(self.fc1(hidden))))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


def _pooled(size: int) -> int:
    """Pixels left of `size` after both convolutions and pools."""
    return (size // 2 - 4) // 2
