"""Residual networks (He et al. 2016): ResNet-18, -50 and wide -50 with the public weights' parameter names, ResNet-20.

The paper is https://arxiv.org/abs/1512.03385. Parameters are named and shaped as torchvision's are, so its ImageNet
files load without torchvision. ResNet-50 strides in its 3x3 convolution, as those weights expect; its wide form
(Zagoruyko and Komodakis 2016, https://arxiv.org/abs/1605.07146) is one of the networks that SPARE infers groups with
(Table 5.2 of the dissertation, https://escholarship.org/uc/item/0399v1qw). The `cifar` stem (3x3, no pooling) is that
of the CIFAR experiments of CREST and EPIC; ResNet-20 (16/32/64 filters, shortcuts without parameters) is CREST's
network on CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalise
from holdfast.errors import ConfigError, nearest

Stem = Literal["imagenet", "cifar"]


class PadShortcut(nn.Module):
    """Option A of He et al.: every `stride`-th pixel, and zeros for the channels that are new; no parameters.

    Args:
        added: how many channels are new.
        stride: the step between the pixels that are kept.
    """

    def __init__(self, added: int, stride: int) -> None:
        super().__init__()
        self.before, self.after, self.stride = added // 2, added - added // 2, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, channels, height, width) to (n, channels + added, height / stride, width / stride)."""
        return F.pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut.

    Args:
        channels: channels of the input.
        width: channels of the output.
        stride: stride of the first convolution.
        downsample: the shortcut where input and output differ in shape.
    """

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, inputs: Tensor) -> Tensor:
        """The residual sum, rectified."""
        shortcut = inputs if self.downsample is None else self.downsample(inputs)
        hidden = F.relu(self.bn1(self.conv1(inputs)))
        return F.relu(self.bn2(self.conv2(hidden)) + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; the output has four times the width.

    Args:
        channels: channels of the input.
        width: channels of the middle convolution, before widening.
        stride: stride of the middle convolution.
        downsample: the shortcut where input and output differ in shape.
    """

    expansion = 4
    widening = 1

    def __init__(self, channels: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        inner = width * self.widening
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = downsample

    def forward(self, inputs: Tensor) -> Tensor:
        """The residual sum, rectified."""
        shortcut = inputs if self.downsample is None else self.downsample(inputs)
        hidden = F.relu(self.bn1(self.conv1(inputs)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        return F.relu(self.bn3(self.conv3(hidden)) + shortcut)


class WideBottleneck(Bottleneck):
    """A bottleneck whose middle convolution is twice as wide; its input and output are as before."""

    widening = 2


class ResNet(nn.Module):
    """A stem, stages of residual blocks, the mean over pixels, a linear head `fc`.

    Args:
        block: the kind of block.
        depths: blocks per stage; every stage but the first halves the resolution.
        widths: width of each stage.
        n_classes: how many logits.
        channels: channels of the images.
        stem: `imagenet` (7x7 stride 2, then max pooling) or `cifar` (3x3).
        pad_shortcuts: use parameter-free shortcuts (option A) instead of 1x1 convolutions.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        n_classes: int,
        *,
        channels: int = 3,
        stem: Stem = "imagenet",
        pad_shortcuts: bool = False,
    ) -> None:
        super().__init__()
        if stem not in ("imagenet", "cifar"):
            raise ConfigError(f"there is no ResNet stem {stem!r}" + nearest(stem, ("imagenet", "cifar")))
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.conv1 = nn.Conv2d(channels, widths[0], kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem == "imagenet" else nn.Identity()
        self.n_stages = len(depths)
        before = widths[0]
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            after = width * block.expansion
            first = block(before, width, 1 if stage == 0 else 2, _shortcut(before, after, stage > 0, pad_shortcuts))
            rest = (block(after, width, 1, None) for _ in range(depth - 1))
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))
            before = after
        self.fc = nn.Linear(before, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def head(self) -> nn.Linear:
        """The last layer, `fc`."""
        return self.fc

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, width of the last stage)."""
        hidden: Tensor = self.maxpool(F.relu(self.bn1(self.conv1(inputs))))
        for stage in range(1, self.n_stages + 1):
            hidden = self.get_submodule(f"layer{stage}")(hidden)
        return hidden.mean(dim=(2, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.fc(self.features(inputs))
        return logits


def resnet18(n_classes: int = 1000, *, channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    """ResNet-18: 11,689,512 parameters at 1000 classes, 11,173,962 with the `cifar` stem at 10."""
    return ResNet(BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512), n_classes, channels=channels, stem=stem)


def resnet50(n_classes: int = 1000, *, channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    """ResNet-50: 25,557,032 parameters at 1000 classes."""
    return ResNet(Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), n_classes, channels=channels, stem=stem)


def wide_resnet50(n_classes: int = 1000, *, channels: int = 3) -> ResNet:
    """Wide ResNet-50-2: 68,883,240 parameters at 1000 classes."""
    return ResNet(WideBottleneck, (3, 4, 6, 3), (64, 128, 256, 512), n_classes, channels=channels)


def resnet20(n_classes: int = 10, *, channels: int = 3) -> ResNet:
    """The ResNet-20 of CIFAR-10: 269,722 parameters at 10 classes; every weight starts as He et al. 2015 draw it."""
    model = ResNet(BasicBlock, (3, 3, 3), (16, 32, 64), n_classes, channels=channels, stem="cifar", pad_shortcuts=True)
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return model


def _shortcut(before: int, after: int, halve: bool, pad: bool) -> nn.Module | None:
    if before == after and not halve:
        return None
    stride = 2 if halve else 1
    if pad:
        return PadShortcut(after - before, stride)
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


class PixelResNet(ResNet):
    """A ResNet for pixels from 0 to 1, which it normalises as ImageNet's networks expect.

    Adversarial budgets are measured in pixels, so normalisation has to be behind them.
    """

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, width of the last stage)."""
        return super().features(Normalise(IMAGENET_MEAN, IMAGENET_STD)(inputs))


def pixel_resnet18(n_classes: int = 1000, *, channels: int = 3) -> PixelResNet:
    """ResNet-18 for pixels from 0 to 1."""
    return PixelResNet(BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512), n_classes, channels=channels)
