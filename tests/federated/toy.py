"""Small federations with uneven clients, and a network of each kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.streams import torch_stream


def part(sizes: list[int], shape: tuple[int, ...], classes: int, seed: int, dtype: torch.dtype) -> ClientPart:
    """Random inputs whose labels a linear rule gives, of the given number per client."""
    generator = torch_stream(seed, "toy")
    rule = torch.randn(torch.Size(shape).numel(), classes, generator=torch_stream(0, "rule"), dtype=dtype)
    inputs = torch.randn(sum(sizes), *shape, generator=generator, dtype=dtype)
    labels = (inputs.flatten(1) @ rule).argmax(1)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor(sizes).cumsum(0)])
    return ClientPart(inputs, labels, offsets)


def toy_clients(
    sizes: tuple[int, ...] = (5, 23, 40, 8, 17, 31, 12, 3),
    shape: tuple[int, ...] = (6,),
    classes: int = 3,
    dtype: torch.dtype = torch.float32,
) -> Clients:
    """Clients of uneven sizes; some have fewer examples than a batch of 8, some hardly any validation data."""
    train = part(list(sizes), shape, classes, 1, dtype)
    validation = part([size // 5 for size in sizes], shape, classes, 2, dtype)
    test = part([10 + size // 4 for size in sizes], shape, classes, 3, dtype)
    return Clients(train, validation, test, classes)


def linear(inputs: int = 6, classes: int = 3) -> nn.Module:
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    model = nn.Linear(inputs, classes)
    torch.random.set_rng_state(torch_state)
    return model


def convolutional(classes: int = 3, *, dropout: float = 0.0, norm: bool = False, tracked: bool = False) -> nn.Module:
    """A small CNN for inputs (1, 8, 8)."""
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(1, 4, 3, padding=1)]
    if norm:
        layers.append(nn.BatchNorm2d(4, track_running_stats=tracked))
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    if dropout:
        layers.append(nn.Dropout(dropout))
    layers.append(nn.Linear(64, classes))
    torch.random.set_rng_state(torch_state)
    return nn.Sequential(*layers)


def rows(clients: Clients) -> Tensor:
    """Ids of all clients."""
    return torch.arange(len(clients))
