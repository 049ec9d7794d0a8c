"""Server optimizers: the aggregate of a round is taken for a gradient, and the server's model moves by an optimizer.

FedAvg adds the mean update Delta to the model. These remember something of earlier rounds and add another step
(Reddi et al., 2021, https://arxiv.org/abs/2003.00295, algorithm 2; momentum is of Hsu et al., 2019,
https://arxiv.org/abs/1909.06335). They stand behind any aggregator, so Delta may be a median as well as a mean. The
formulas are those of Flower's strategies: moments begin with zero, where the paper has tau^2 for the second, and
FedAdam corrects its moments' bias by exponents of one more than the round, which the paper does not do.

Use them where rounds are few or noisy: momentum smooths cohorts that change, adaptive steps help layers whose updates
are small. Their step size is another than FedAvg's 1, and has to be tuned; powers of ten are the paper's grid.

A model's running statistics are averages and no parameters: they take the aggregate as it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.lazy import LazyTable

#: What an optimizer remembers between rounds, by name.
Moments = dict[str, Tensor]


@dataclass(frozen=True)
class ServerOptimizer(ABC):
    """Turns the aggregate of a round into the server's step. Derive, and write `move`; fields are its options."""

    name: ClassVar[str]
    #: Names of the vectors that it remembers.
    remembers: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            share = option.name in ("momentum", "beta_1", "beta_2")
            if isinstance(value, bool):
                continue
            if not (0 <= value < 1 if share else 0 < value < math.inf):
                expected = "a number from 0 to below 1" if share else "a positive number"
                raise ConfigError(f"{self.name}'s {option.name} is {value:g}; give {expected}")

    def begin(self, parameters: int) -> Moments:
        """What is remembered before the first round: zeros, with 64 bits, and that no round was."""
        zeros = {name: torch.zeros(parameters, dtype=torch.float64) for name in self.remembers}
        return {**zeros, "rounds": torch.zeros((), dtype=torch.int64)}

    def step(self, aggregate: Tensor, moments: Moments, parameters: Tensor) -> tuple[Tensor, Moments]:
        """What is added to the model, and what to remember.

        Args:
            aggregate: of the clients' updates, shape (P,).
            moments: what was remembered, of as many numbers as there are parameters.
            parameters: which of the P numbers are parameters, bool of shape (P,); the others are running statistics.
        """
        rounds = moments["rounds"] + 1
        moved, after = self.move(aggregate[parameters].double(), moments, int(rounds))
        step = aggregate.clone()
        step[parameters] = moved.to(aggregate.dtype)
        return step, {**after, "rounds": rounds}

    @abstractmethod
    def move(self, delta: Tensor, moments: Moments, number: int) -> tuple[Tensor, Moments]:
        """The step for Delta, and the vectors to remember.

        Args:
            delta: float64 of shape (parameters,).
            moments: what was remembered.
            number: of the round, from 1.
        """


@dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    """Momentum: ``v <- beta v + Delta``, and the model moves by ``eta v``.

    Attributes:
        server_learning_rate: eta.
        momentum: beta; with 0 and a learning rate of 1 it is FedAvg.
    """

    name: ClassVar[str] = "fedavgm"
    remembers: ClassVar[tuple[str, ...]] = ("v",)

    server_learning_rate: float = 1.0
    momentum: float = 0.9

    def move(self, delta: Tensor, moments: Moments, number: int) -> tuple[Tensor, Moments]:
        """One step along the momentum."""
        v = self.momentum * moments["v"] + delta
        return self.server_learning_rate * v, {"v": v}


@dataclass(frozen=True)
class FedAdagrad(ServerOptimizer):
    """Adagrad: ``v <- v + Delta^2``, and the model moves by ``eta Delta / (sqrt(v) + tau)``.

    Attributes:
        server_learning_rate: eta.
        tau: how far steps adapt; the smaller, the more.
    """

    name: ClassVar[str] = "fedadagrad"
    remembers: ClassVar[tuple[str, ...]] = ("v",)

    server_learning_rate: float = 0.1
    tau: float = 1e-3

    def move(self, delta: Tensor, moments: Moments, number: int) -> tuple[Tensor, Moments]:
        """One step, shorter where updates were large."""
        v = moments["v"] + delta.square()
        return self.server_learning_rate * delta / (v.sqrt() + self.tau), {"v": v}


@dataclass(frozen=True)
class FedAdam(ServerOptimizer):
    """Adam: ``m <- beta_1 m + (1 - beta_1) Delta``, ``v <- beta_2 v + (1 - beta_2) Delta^2``; a step along m / sqrt(v).

    Attributes:
        server_learning_rate: eta.
        beta_1: share of the old first moment in the new.
        beta_2: share of the old second moment in the new.
        tau: how far steps adapt; the smaller, the more.
        bias_correction: whether moments are corrected for having begun with zero, as Flower does; the paper does not.
    """

    name: ClassVar[str] = "fedadam"
    remembers: ClassVar[tuple[str, ...]] = ("m", "v")

    server_learning_rate: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    bias_correction: bool = True

    def move(self, delta: Tensor, moments: Moments, number: int) -> tuple[Tensor, Moments]:
        """One step along the first moment, over the root of the second."""
        m = self.beta_1 * moments["m"] + (1 - self.beta_1) * delta
        v = self.beta_2 * moments["v"] + (1 - self.beta_2) * delta.square()
        rate = self.server_learning_rate
        if self.bias_correction:
            rate *= math.sqrt(1 - self.beta_2 ** (number + 1)) / (1 - self.beta_1 ** (number + 1))
        return rate * m / (v.sqrt() + self.tau), {"m": m, "v": v}


@dataclass(frozen=True)
class FedYogi(ServerOptimizer):
    """Yogi: Adam whose second moment moves towards Delta^2 by (1 - beta_2) Delta^2 at most, so that it falls slowly.

    Attributes:
        server_learning_rate: eta.
        beta_1: share of the old first moment in the new.
        beta_2: one minus the factor of the second moment's move.
        tau: how far steps adapt; the smaller, the more.
    """

    name: ClassVar[str] = "fedyogi"
    remembers: ClassVar[tuple[str, ...]] = ("m", "v")

    server_learning_rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3

    def move(self, delta: Tensor, moments: Moments, number: int) -> tuple[Tensor, Moments]:
        """One step along the first moment, over the root of the second."""
        m = self.beta_1 * moments["m"] + (1 - self.beta_1) * delta
        square = delta.square()
        v = moments["v"] - (1 - self.beta_2) * square * torch.sign(moments["v"] - square)
        return self.server_learning_rate * m / (v.sqrt() + self.tau), {"m": m, "v": v}


SERVER_OPTIMIZERS: LazyTable[type[ServerOptimizer]] = LazyTable(
    "server optimizer", {optimizer.name: optimizer for optimizer in (FedAvgM, FedAdagrad, FedAdam, FedYogi)}
)
