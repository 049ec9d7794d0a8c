"""A small federation with uneven clients, and a loss that can be minimised on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.clients.clients import ClientPart, Clients, Task
from holdfast.federated.aggregation import Mean
from holdfast.federated.engine.network import Network
from holdfast.federated.federation import federate
from holdfast.federated.personalization import Personalizer
from holdfast.federated.result import FederationResult
from holdfast.federated.settings import Rounds

FEATURES, CLASSES = 4, 3


def part(counts: Sequence[int], seed: int) -> ClientPart:
    """Noisy classes of a linear teacher that differs a little by client."""
    generator = torch.Generator().manual_seed(seed)
    teacher = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(99))
    inputs = torch.randn(sum(counts), FEATURES, generator=generator)
    owners = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    own = torch.randn(len(counts), FEATURES, CLASSES, generator=torch.Generator().manual_seed(98))
    scores = torch.einsum("nf,nfc->nc", inputs, teacher + 0.5 * own[owners])
    noise = torch.randn(scores.shape, generator=generator)
    return ClientPart.of_counts(inputs, (scores + 0.5 * noise).argmax(1), torch.tensor(counts))


def clients(
    train: Sequence[int] = (9, 30, 5, 14, 22, 40, 3, 17), validation: Sequence[int] = (4, 6, 3, 5, 0, 9, 2, 4)
) -> Clients:
    """Eight clients, some with too little validation data to choose by, some with less than a batch."""
    return Clients(part(train, 0), part(validation, 1), part([10] * len(train), 2), CLASSES)


def model() -> nn.Module:
    """A network small enough to run everywhere, with fixed weights."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES))


SETTINGS = Rounds(
    rounds=6, cohort=4, batch_size=8, local_steps=2, learning_rate=0.1, evaluate_every=0, executor="serial", seed=5
)


def run(
    *methods: Personalizer,
    settings: Rounds = SETTINGS,
    data: Clients | None = None,
    net: nn.Module | None = None,
    **given: Any,
) -> FederationResult:
    """A federation of the toy clients."""
    return federate(data or clients(), net or model(), settings, personalize=methods, **given)


def rows(outcome: FederationResult, label: str) -> Tensor:
    """What every client keeps, shape (clients, width)."""
    store = outcome.runtime.stores[label]
    return store.read(torch.arange(len(store)))


@dataclass(frozen=True)
class Recording(Mean):
    """The mean, which remembers the server's step of each round."""

    steps: list[Tensor] = field(default_factory=list)

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:
        step = super().__call__(updates, f=f, losses=losses)
        self.steps.append(step.clone())
        return step


class Squares(Network):
    """Half the squared distance of the outputs from zero, instead of a classifier's loss."""

    def __init__(self, model: nn.Module, task: Task = "margin", **options: Any) -> None:
        super().__init__(model, "margin", **options)

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs.square().sum(-1) / 2


class Point(nn.Module):
    """``sqrt(h) (w - x)`` for one parameter w, so that the loss of `Squares` is ``h (w - x)^2 / 2``."""

    def __init__(self, curvature: float = 1.0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, dtype=dtype))
        self.root = curvature**0.5

    def forward(self, inputs: Tensor) -> Tensor:
        return self.root * (self.w - inputs)


def points(values: Sequence[float], dtype: torch.dtype = torch.float32) -> Clients:
    """Clients with one number each."""
    inputs = torch.tensor(values, dtype=dtype)[:, None]
    each = ClientPart(inputs, torch.zeros(len(values), dtype=torch.int64), torch.arange(len(values) + 1))
    return Clients(each, each, each, 2)
