"""The convolutional networks of the federated benchmarks, with the papers' exact numbers of parameters (Ditto, App. D).

They run for many clients at once (`holdfast.federated`): dropout is an ordinary module, nothing is changed in place, no
branch depends on data, and batch normalisation keeps no running statistics, but where that is asked for.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.shapes import expect_shape


class FederatedCNN(nn.Module):
    """Two convolutions and one hidden layer, the shape of nearly all federated image benchmarks.

    `holdfast.models.MODELS` has the published forms by name: FEMNIST's has 222,078 parameters, Fashion-MNIST's
    3,274,634, the small one of speed comparisons 20,522, one at half resolution for two cores 6,218, and that of the
    pfl benchmark on CIFAR-10 1,626,442.

    Args:
        input_shape: (channels, height, width).
        n_classes: how many logits.
        filters: of the two convolutions.
        hidden: width of the hidden layer.
        kernel: side of the filters.
        padded: whether the convolutions keep the size of the image.
        pool_first: whether the first convolution is followed by 2x2 max pooling; the second always is.
        halved: whether images are looked at in half their resolution.
        dropout: probabilities before and after the hidden layer.
        normalised: whether batch normalisation, with running statistics, follows each convolution.

    Example:
        >>> import torch
        >>> model = FederatedCNN((1, 28, 28), 62, (16, 32), 128, dropout=(0.25, 0.5))
        >>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(3, 1, 28, 28)).shape
        (222078, torch.Size([3, 62]))
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        n_classes: int,
        filters: tuple[int, int],
        hidden: int,
        *,
        kernel: int = 5,
        padded: bool = True,
        pool_first: bool = True,
        halved: bool = False,
        dropout: tuple[float, float] = (0.0, 0.0),
        normalised: bool = False,
    ) -> None:
        super().__init__()
        channels, height, width = expect_shape("a device CNN", input_shape, "channels", "height", "width")
        padding = kernel // 2 if padded else 0
        shrink = kernel - 1 - 2 * padding
        seen = (height // 2, width // 2) if halved else (height, width)
        sides = [((side - shrink) // (2 if pool_first else 1) - shrink) // 2 for side in seen]
        if min(sides) < 1:
            raise ConfigError(f"images of {height}x{width} pixels are too small for this network; resize them")
        self.shrink = nn.AvgPool2d(2) if halved else nn.Identity()
        self.conv1 = nn.Conv2d(channels, filters[0], kernel, padding=padding)
        self.norm1, self.norm2 = (nn.BatchNorm2d(width) if normalised else nn.Identity() for width in filters)
        self.pool1 = nn.MaxPool2d(2) if pool_first else nn.Identity()
        self.conv2 = nn.Conv2d(filters[0], filters[1], kernel, padding=padding)
        self.dropout1 = nn.Dropout(dropout[0]) if dropout[0] else nn.Identity()
        self.dense = nn.Linear(filters[1] * sides[0] * sides[1], hidden)
        self.dropout2 = nn.Dropout(dropout[1]) if dropout[1] else nn.Identity()
        self.head = nn.Linear(hidden, n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, hidden)."""
        maps = self.pool1(F.relu(self.norm1(self.conv1(self.shrink(inputs)))))
        maps = self.dropout1(F.max_pool2d(F.relu(self.norm2(self.conv2(maps))), 2))
        hidden: Tensor = self.dropout2(F.relu(self.dense(maps.flatten(1))))
        return hidden

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


class CelebACNN(nn.Module):
    """LEAF's network for CelebA: four blocks of convolution, batch normalisation, max pooling and ReLU.

    It takes raw pixels from 0 to 255, bytes or floats. Batch normalisation uses the statistics of the batch at
    evaluation too, as LEAF's does; only its scale and shift are parameters. 31,202 parameters at 84x84 pixels.

    Args:
        input_shape: (channels, height, width); 84x84 pixels shrink to 42, 21, 11 and 6.
        n_classes: how many logits.
    """

    def __init__(self, input_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__()
        channels, height, width = expect_shape("the CelebA CNN", input_shape, "channels", "height", "width")
        self.convs = nn.ModuleList(nn.Conv2d(32 if block else channels, 32, 3, padding=1) for block in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(32, track_running_stats=False) for _ in range(4))
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.head = nn.Linear(32 * -(-height // 16) * -(-width // 16), n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, 1152) for 84x84 pixels."""
        maps = inputs.to(self.head.weight.dtype)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            maps = F.relu(self.pool(norm(conv(maps))))
        return maps.flatten(1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
