"""How many rounds, which clients, how much local work; the fields are the options of ``holdfast federate``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import ConfigError

#: How client functions are run, see `holdfast.federated.engine.executors`.
ExecutorName = Literal["auto", "serial", "batched", "pool"]

_COUNTS = ("rounds", "cohort", "batch_size", "local_steps", "local_epochs", "workers", "chunk", "halve_every")


@dataclass(frozen=True)
class Rounds:
    """Settings of a federation.

    Attributes:
        rounds: how often clients are selected, train and send.
        cohort: clients per round.
        batch_size: examples per mini-batch; a client with fewer uses all it has.
        local_steps: mini-batch steps per round. Ignored where `local_epochs` is given.
        local_epochs: walks through a client's data per round, instead of a number of steps.
        optimizer: of the shared model on clients, with a fresh state in every round, and of methods that tune it.
        learning_rate: of the shared model on clients.
        personal_learning_rate: of personal models; the same by default.
        halve_every: halve the learning rates after so many rounds.
        sampling: how clients are selected, without replacement: in proportion to their training examples, uniformly,
            with the malicious share in each round (`stratified`), or each by itself with the same chance, so that a
            round has `cohort` clients on average (`poisson`, which differential privacy is accounted for).
        shuffle: whether clients shuffle their data before each walk through it; without, they walk through it in its
            order, round and round.
        evaluate_every: rounds between evaluations on all clients; 0 evaluates after the last round only.
        executor: how clients are run: one after another, stacked into one computation, on worker processes, or whatever
            is fastest when measured.
        workers: processes of `pool`; one per core by default.
        chunk: clients that are stacked; by the model's size by default.
        device: where models, batches and updates are while they are computed with, such as `cuda`; data and personal
            models stay in the host's memory. `pool` is for the CPU.
        seed: names every random stream.
        checkpoint_seconds: how often the state is saved, where there is a run directory.
    """

    rounds: int = 100
    cohort: int = 10
    batch_size: int = 16
    local_steps: int = 2
    local_epochs: int | None = None
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.05
    personal_learning_rate: float | None = None
    halve_every: int | None = None
    sampling: Literal["examples", "uniform", "stratified", "poisson"] = "examples"
    shuffle: bool = True
    evaluate_every: int = 10
    executor: ExecutorName = "auto"
    workers: int | None = None
    chunk: int | None = None
    device: str = "cpu"
    seed: int = 0
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; give at least 1")
        for name in ("learning_rate", "personal_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; give a positive number")
        if self.executor == "pool" and self.device != "cpu":
            raise ConfigError(
                f"the pool's workers are forks of this process, and a fork can't use the device {self.device!r}; use "
                "the executor batched"
            )
        if self.evaluate_every < 0:
            raise ConfigError(f"evaluate_every is {self.evaluate_every}; give 0 to evaluate at the end only, or more")

    def decay(self, number: int) -> float:
        """What the learning rates are multiplied by in round `number`, counted from 0."""
        return 0.5 ** (number // self.halve_every) if self.halve_every else 1.0

    def largest_cohort(self, clients: int) -> int:
        """The most clients that a round of a federation of so many can have."""
        return clients if self.sampling == "poisson" else min(self.cohort, clients)

    @property
    def personal_rate(self) -> float:
        """Learning rate of personal models."""
        return self.learning_rate if self.personal_learning_rate is None else self.personal_learning_rate
