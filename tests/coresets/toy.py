"""Small data and networks for coresets: three Gaussian classes, and networks with and without batch norm."""

import torch
from torch import nn

from holdfast.data import Examples, Splits

CLASSES = 3


def gaussians(n=240, d=8, seed=0, spread=1.5):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % CLASSES
    centres = 2 * torch.randn(CLASSES, d, generator=torch.Generator().manual_seed(7))
    return Examples.of(centres[labels] + spread * torch.randn(n, d, generator=generator), labels)


def toy_splits(n=240):
    return Splits("gaussians", gaussians(n), gaussians(60, seed=1), gaussians(90, seed=2))


def net(norm=None, dropout=0.0, seed=0, d=8):
    torch.manual_seed(seed)
    layers = [nn.Linear(d, 16)]
    if norm == "batch":
        layers.append(nn.BatchNorm1d(16))
    layers.append(nn.Tanh())
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(16, CLASSES))


def sgd(model, rate=0.05, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum, weight_decay=1e-4)
