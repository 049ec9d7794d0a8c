"""DenseNet-121 (Huang et al. 2017), in which every layer reads the outputs of all layers before it in its block.

The paper is https://arxiv.org/abs/1608.06993. It is one of the networks that SPARE infers groups with (Table 5.2 of the
dissertation, https://escholarship.org/uc/item/0399v1qw). Parameters are named and shaped as torchvision's are, so its
ImageNet file loads without torchvision; that file has the names of an older version, see `current_name`.
"""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.shapes import expect_shape

_BLOCKS = (6, 12, 24, 16)
_GROWTH = 32
_BOTTLENECK = 4 * _GROWTH
_STEM = 64
_SMALLEST = 29


class DenseLayer(nn.Module):
    """1x1 and 3x3 convolutions, each after normalisation and ReLU; the result is appended to the input.

    Args:
        channels: channels of the input; the output has 32 more.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, _BOTTLENECK, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(_BOTTLENECK)
        self.conv2 = nn.Conv2d(_BOTTLENECK, _GROWTH, 3, padding=1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, channels, height, width) to (n, channels + 32, height, width)."""
        hidden = self.conv1(F.relu(self.norm1(inputs)))
        added: Tensor = self.conv2(F.relu(self.norm2(hidden)))
        return torch.cat([inputs, added], dim=1)


class Transition(nn.Module):
    """Between two blocks: half the channels by a 1x1 convolution, half the resolution by averaging.

    Args:
        channels: channels of the input.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels // 2, 1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, channels, height, width) to (n, channels / 2, height / 2, width / 2)."""
        return F.avg_pool2d(self.conv(F.relu(self.norm(inputs))), 2)


class DenseFeatures(nn.Module):
    """The stem, the dense blocks and the mean over pixels.

    Args:
        channels: channels of the images.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.add_module("conv0", nn.Conv2d(channels, _STEM, 7, 2, padding=3, bias=False))
        self.add_module("norm0", nn.BatchNorm2d(_STEM))
        self.add_module("relu0", nn.ReLU())
        self.add_module("pool0", nn.MaxPool2d(3, 2, padding=1))
        self.width = _STEM
        for number, depth in enumerate(_BLOCKS, start=1):
            block = nn.Sequential()
            for layer in range(1, depth + 1):
                block.add_module(f"denselayer{layer}", DenseLayer(self.width))
                self.width += _GROWTH
            self.add_module(f"denseblock{number}", block)
            if number < len(_BLOCKS):
                self.add_module(f"transition{number}", Transition(self.width))
                self.width //= 2
        self.add_module("norm5", nn.BatchNorm2d(self.width))

    def forward(self, inputs: Tensor) -> Tensor:
        """Images (n, channels, height, width) to what the head sees, (n, 1024)."""
        hidden = inputs
        for part in self.children():
            hidden = part(hidden)
        return F.relu(hidden).mean(dim=(2, 3))


class DenseNet121(nn.Module):
    """Four dense blocks and a linear head: 7,978,856 parameters at 1000 classes.

    Args:
        input_shape: (channels, height, width) of an image, at least 29x29 pixels.
        n_classes: how many logits.

    Example:
        >>> import torch
        >>> model = DenseNet121((3, 32, 32), 2).eval()
        >>> model.features(torch.zeros(1, 3, 32, 32)).shape, model(torch.zeros(1, 3, 32, 32)).shape
        (torch.Size([1, 1024]), torch.Size([1, 2]))
    """

    def __init__(self, input_shape: tuple[int, ...] = (3, 224, 224), n_classes: int = 1000) -> None:
        super().__init__()
        channels, height, width = expect_shape("DenseNet-121", input_shape, "channels", "height", "width")
        if min(height, width) < _SMALLEST:
            raise ConfigError(
                f"DenseNet-121 needs images of at least {_SMALLEST}x{_SMALLEST} pixels and was given {height}x{width}; "
                "resize them"
            )
        self.features = DenseFeatures(channels)
        self.classifier = nn.Linear(self.features.width, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.classifier.bias)

    @property
    def head(self) -> nn.Linear:
        """The last layer, `classifier`."""
        return self.classifier

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits


def current_name(key: str) -> str:
    """The present name of a parameter in the public file, which calls ``norm1`` of a dense layer ``norm.1``.

    Args:
        key: a name in a state dict of any network.

    Returns:
        The name, unchanged where it isn't one of the old ones.

    Example:
        >>> current_name("features.denseblock1.denselayer2.norm.1.weight")
        'features.denseblock1.denselayer2.norm1.weight'
    """
    return re.sub(r"(\.denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2", key)
