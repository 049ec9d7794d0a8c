"""A small problem whose active set grows or shrinks, and what iterating the curator itself gives for it."""

import gc
import logging
import multiprocessing
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import HoldfastWarning
from holdfast.training.curator import Curator
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy, Restart, ScaleLearningRate

N = 64
EPOCHS = 4
GROWING = (16, 32, 48, 64)
SHRINKING = (64, 48, 32, 16)


@dataclass(frozen=True)
class Resize(Policy):
    """Keep the first `sizes[epoch]` examples, weighed unevenly where asked."""

    name: ClassVar[str] = "resize"

    sizes: tuple[int, ...] = GROWING
    weigh: bool = False

    def due(self, clock):
        return clock.starts_epoch

    def update(self, context: Context) -> Plan:
        n = len(context.examples)
        size = self.sizes[min(context.clock.epoch, len(self.sizes) - 1)]
        weights = 1.0 + (torch.arange(n) + context.clock.epoch) % 3
        return Plan(copies=torch.arange(n) < size, loss_weight=weights if self.weigh else None)


@dataclass(frozen=True)
class RestartAfterOne(Policy):
    """One warm-up epoch on everything, then again from the start on the first half."""

    name: ClassVar[str] = "restart-after-one"

    @property
    def warmup_epochs(self) -> int:
        return 1

    def due(self, clock):
        return clock.starts_epoch and clock.epoch <= 1

    def update(self, context: Context) -> Plan:
        if context.clock.epoch == 0:
            return Plan()
        context.request(Restart())
        return Plan(copies=torch.arange(len(context.examples)) < len(context.examples) // 2)


@dataclass(frozen=True)
class TenthOfTheRate(Policy):
    """A tenth of the learning rate after two epochs."""

    name: ClassVar[str] = "tenth"

    def due(self, clock):
        return clock.starts_epoch and clock.epoch in {0, 2}

    def update(self, context: Context) -> Plan:
        if context.clock.epoch == 2:
            context.request(ScaleLearningRate(0.1))
        return Plan()


@dataclass(frozen=True)
class EveryStep(Policy):
    """Can be due after any step."""

    name: ClassVar[str] = "every-step"
    acts_between_steps: ClassVar[bool] = True

    def update(self, context: Context) -> Plan:
        return Plan()


def make_examples() -> Examples:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(N, 4, generator=generator)
    return Examples.of(inputs, (inputs.sum(1) > 0).long())


def make_curator(policy: Policy | None = None, **options) -> Curator:
    options = {"batch_size": 8, "seed": 3, **options}
    return Curator(make_examples(), policy, **options)


def make_model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return nn.Linear(4, 2)


def weighted_loss(model: nn.Module, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    return (weights * nn.functional.cross_entropy(model(inputs), labels, reduction="none")).mean()


def seen_by_curator(policy: Policy | None, epochs: int = EPOCHS, **options) -> list[list[list[int]]]:
    """Positions per batch per epoch, by the curator's own loop."""
    curator = make_curator(policy, **options)
    return [[batch.positions.tolist() for batch in curator] for _ in curator.epochs(epochs)]


def trained_by_curator(policy: Policy | None, epochs: int = EPOCHS, rate: float = 0.1, **options) -> dict[str, Tensor]:
    """The weights after the plain loop of the curator's documentation, with SGD."""
    curator, model = make_curator(policy, **options), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in curator.epochs(epochs, model, optimizer):
        for x, y, _positions, weight in curator:
            optimizer.zero_grad()
            weighted_loss(model, x, y, weight).backward()
            optimizer.step()
    return model.state_dict()


def joined(parts: Iterable[list]) -> list:
    return list(chain.from_iterable(parts))


def same_weights(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Frameworks chat through logging and warnings; holdfast's own warnings stay errors."""
    names = ("lightning", "lightning.pytorch", "lightning.fabric", "transformers", "accelerate", "mlflow")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("error", category=HoldfastWarning)
        yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    if multiprocessing.active_children():
        # torch waits seconds for the workers of a loader that is collected while another one's are alive.
        gc.collect()
