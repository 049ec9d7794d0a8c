"""Modules of a user's own, written into a folder that is then the current one."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NET = """
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

from torch import nn


class Net(nn.Module):
    def __init__(self, input_shape, n_classes, hidden=8, widths=()):
        super().__init__()
        size = 1
        for side in input_shape:
            size *= side
        sizes = [size, hidden, *widths]
        pairs = zip(sizes, sizes[1:])
        self.body = nn.Sequential(nn.Flatten(), *(nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairs))
        self.classifier = nn.Linear(sizes[-1], n_classes)

    def forward(self, x):
        return self.classifier(self.body(x))


class Logits(Net):
    def forward(self, x):
        return SimpleNamespace(logits=super().forward(x))


class Scaled(Net):
    def forward(self, x):
        return 3 * super().forward(x)


class Fails(Net):
    def forward(self, x):
        return x.nothing


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        raise RuntimeError("no more memory")


@dataclass
class Config:
    n_classes: int
    width: int = 3
    in_channels: int = 1


class Configured(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.conv = nn.Conv2d(config.in_channels, config.width, 1)
        self.out = nn.Linear(config.width, config.n_classes)

    def forward(self, x):
        return self.out(self.conv(x).mean((2, 3)))


class Lazy(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.flat, self.fc = nn.Flatten(), nn.LazyLinear(num_classes)

    def forward(self, x):
        return self.fc(self.flat(x))


def made(num_classes, in_features, depth=1):
    return nn.Sequential(nn.Flatten(), *(nn.Linear(in_features, in_features) for _ in range(depth)),
                         nn.Linear(in_features, num_classes))


def nothing_made():
    return {}


def exact(blocks):
    return nn.Linear(blocks, blocks)


ready = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
small = partial(Net, hidden=2)
three = 3
NotANetwork = Config
"""

_numbers = itertools.count()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package in the current directory, whose module ``net`` has the models above."""
    package = f"own_package_{next(_numbers)}"
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    yield package
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[module]
