"""A bed small enough to attack and defend on a CPU in seconds: rendered shapes, and a network that tells them apart.

Ten shapes in random poses and colours before a gradient of two others, 16 x 16 pixels, with a little noise. The network
reaches 98 % on 2,000 of them in 24 epochs; its 128 features serve as the frozen extractor of transfer learning. EPIC's
CPU experiments and the tests of the attacks stand on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples, Splits
from holdfast.errors import ConfigError
from holdfast.streams import torch_stream

_SIDE = 16
_FINE = 3  # points per pixel and direction, so that edges are smooth

#: Whether a point (x, y) is in a shape that fills about the square from -1 to 1.
_SHAPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "disc": lambda x, y: x**2 + y**2 < 0.8,
    "square": lambda x, y: (x.abs() < 0.75) & (y.abs() < 0.75),
    "triangle": lambda x, y: (y < 0.8) & (y > 2 * x.abs() - 0.9),
    "plus": lambda x, y: ((x.abs() < 0.28) | (y.abs() < 0.28)) & (x.abs() < 0.9) & (y.abs() < 0.9),
    "ring": lambda x, y: (x**2 + y**2 < 0.9) & (x**2 + y**2 > 0.3),
    "diamond": lambda x, y: x.abs() + y.abs() < 0.95,
    "horizontal bars": lambda x, y: (torch.cos(2.5 * math.pi * y) > 0) & (x.abs() < 0.9) & (y.abs() < 1),
    "vertical bars": lambda x, y: (torch.cos(2.5 * math.pi * x) > 0) & (y.abs() < 0.9) & (x.abs() < 1),
    "cross": lambda x, y: ((x - y).abs() < 0.36) & (x.abs() < 0.85) | ((x + y).abs() < 0.36) & (x.abs() < 0.85),
    "half disc": lambda x, y: (x**2 + y**2 < 0.9) & (y > 0),
}


def rendered_shapes(n: int, *, seed: int = 0, classes: int = 10, noise: float = 0.02, first_id: int = 0) -> Examples:
    """Draw images of shapes, as many of each class but for rounding.

    Args:
        n: how many.
        seed: decides everything.
        classes: how many of the ten shapes.
        noise: standard deviation of every pixel.
        first_id: ids are counted from here.

    Returns:
        Pixels from 0 to 1 of 8 bits, float32 of shape (3, 16, 16).
    """
    if not 2 <= classes <= len(_SHAPES):
        raise ConfigError(f"there are {len(_SHAPES)} shapes and {classes} classes are wanted; give 2 to {len(_SHAPES)}")
    stream = torch_stream(seed, "rendered-shapes")
    labels = torch.arange(n) % classes

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=stream)

    fine = (torch.arange(_SIDE * _FINE) + 0.5) / (_SIDE * _FINE) * 2 - 1
    angle, size = uniform(-0.35, 0.35, 1, 1), uniform(0.45, 0.85, 1, 1)
    down = (fine[:, None] - uniform(-0.25, 0.25, 1, 1)) / size
    right = (fine[None, :] - uniform(-0.25, 0.25, 1, 1)) / size
    x = torch.cos(angle) * right + torch.sin(angle) * down
    y = torch.cos(angle) * down - torch.sin(angle) * right
    inside = torch.zeros(n, _SIDE * _FINE, _SIDE * _FINE)
    for number, shape in enumerate(list(_SHAPES.values())[:classes]):
        mine = labels == number
        inside[mine] = shape(x[mine], y[mine]).float()
    mask = F.avg_pool2d(inside[:, None], _FINE)
    colour, one, other = uniform(0, 1, 3, 1, 1), uniform(0, 1, 3, 1, 1), uniform(0, 1, 3, 1, 1)
    across = torch.linspace(0, 1, _SIDE)
    slope = (across[:, None] + across[None, :]) / 2
    ground = one + (0.5 * other - 0.5 * one) * slope
    nearer = (colour - ground.mean((2, 3), keepdim=True)).abs().mean(1, keepdim=True) < 0.12
    colour = torch.where(nearer, (colour + 0.4) % 1, colour)
    images = ground * (1 - mask) + colour * mask
    images = images + noise * torch.randn(images.shape, generator=stream)
    pixels = (images.clamp(0, 1) * 255).round() / 255
    return Examples.of(pixels, labels, ids=torch.arange(n) + first_id, class_names=list(_SHAPES)[:classes])


def shape_splits(
    train: int = 2000, test: int = 800, *, seed: int = 0, classes: int = 10, noise: float = 0.02
) -> Splits:
    """Training, validation (a quarter as large as the test set) and test set of rendered shapes."""
    sizes = {"train": train, "validation": max(test // 4, classes), "test": test}
    parts, first = list[Examples](), 0
    for number, n in enumerate(sizes.values()):
        parts.append(rendered_shapes(n, seed=3 * seed + number, classes=classes, noise=noise, first_id=first))
        first += n
    return Splits("rendered-shapes", *parts)


class ShapeCNN(nn.Module):
    """Four convolutions with batch norm, halved twice and averaged to 2 x 2: 128 features and a linear head.

    Args:
        n_classes: how many logits.
        width: channels of the first two convolutions; the others have twice as many.
        channels: of the images.
    """

    def __init__(self, n_classes: int = 10, width: int = 16, channels: int = 3) -> None:
        super().__init__()
        widths = (channels, width, width, 2 * width, 2 * width)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in widths[1:])
        self.head = nn.Linear(4 * widths[-1], n_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        maps = inputs
        for place, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            maps = F.relu(norm(convolution(maps)))
            if place in (1, 3):
                maps = F.max_pool2d(maps, 2)
        logits: Tensor = self.head(F.adaptive_avg_pool2d(maps, 2).flatten(1))
        return logits


def shape_cnn(seed: int, n_classes: int = 10, width: int = 16, channels: int = 3) -> ShapeCNN:
    """An untrained network from a seed; the caller's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ShapeCNN(n_classes, width, channels)
