"""A tiny set with a shortcut: what the tests of training train on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.data import Examples, Splits


def toy_examples(n: int = 60, seed: int = 0, offset: int = 0) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    attributes = torch.where(torch.rand(n, generator=generator) < 0.8, labels, 1 - labels)
    inputs = torch.randn(n, 6, generator=generator)
    inputs[:, 0] += 0.8 * (2 * labels - 1)
    inputs[:, 1] += 2.0 * (2 * attributes - 1)
    return Examples.of(inputs, labels, attributes=attributes, ids=torch.arange(n) + offset)


def toy_splits() -> Splits:
    return Splits("toy", toy_examples(60, 0), toy_examples(40, 1, 1000), toy_examples(40, 2, 2000))


class ToyNet(nn.Module):
    """Dropout and batch norm included: both have state that a resumed run must restore."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def toy_model(seed: int = 0) -> ToyNet:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return ToyNet()
