"""The workloads, the same for every system: models, client data and settings from seeds, and what a run writes down.

Every system runs in an environment of its own, so this module imports nothing but torch. A run is told what to do by
one environment variable, which worker processes inherit, whoever starts them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

VARIABLE = "HOLDFAST_FEDERATED_JOB"
RATE = 0.05
LAMBDA = 1.0
CLASSES = 10
WORDS, LENGTH = 1000, 40


def logistic() -> nn.Module:
    """Logistic regression of 28 x 28 images, 7,850 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))


def mlp() -> nn.Module:
    """One hidden layer of 100, 79,510 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, CLASSES))


def small_cnn() -> nn.Module:
    """Two convolutions and a hidden layer of 64, 20,522 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
    )


def large_cnn() -> nn.Module:
    """The CNN of pfl's own CIFAR-10 benchmark without its dropout, 1,626,442 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(12_544, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
    )


class WordGru(nn.Module):
    """Words, a GRU over them, and a layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.gru = nn.Embedding(WORDS, 64), nn.GRU(64, 128, batch_first=True)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.gru(self.words(x))[0][:, -1])


class WordTransformer(nn.Module):
    """Two layers of width 64 with four heads, over words and their learned positions, and the mean of the last.

    Nothing is dropped: every system draws its dropout in its own way, and the results could not be compared.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, 64), nn.Parameter(0.02 * torch.randn(LENGTH, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.encoder(self.words(x) + self.positions).mean(1))


def tiny() -> nn.Module:
    """Logistic regression of 60 features, 610 parameters."""
    return nn.Sequential(nn.Linear(60, CLASSES))


@dataclass(frozen=True)
class Workload:
    """What one round of a federation is made of.

    Attributes:
        model: makes the network.
        shape: of one input.
        examples: of each client.
        clients: in the federation; all of them train in every round, except where `cohort` says less.
        rounds: how many.
        ditto: whether every client also takes Ditto's personal pass over the same batches.
        cohort: clients per round, where it isn't all.
        batch: examples per step of the one local epoch; batches are taken in the order of the data.
        words: how many there are, where inputs are texts.
        dtype: of inputs and weights. Initial weights and data are drawn in single precision and then converted.
    """

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    examples: int = 60
    clients: int = 100
    rounds: int = 12
    ditto: bool = False
    cohort: int = 0
    batch: int = 10
    words: int = 0
    dtype: torch.dtype = torch.float32

    @property
    def trained(self) -> int:
        """Clients trained in a round."""
        return self.cohort or self.clients

    def new_model(self) -> nn.Module:
        """The network with the initial weights, the same in every system."""
        torch.manual_seed(0)
        return self.model().to(self.dtype)

    def client(self, number: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of one client."""
        generator = torch.Generator().manual_seed(1000 + number)
        shape = (self.examples, *self.shape)
        if self.words:
            inputs = torch.randint(0, self.words, shape, generator=generator)
        else:
            inputs = torch.randn(shape, generator=generator).to(self.dtype)
        return inputs, torch.randint(0, CLASSES, (self.examples,), generator=generator)

    def train(self, model: nn.Module, x: Tensor, y: Tensor, towards: Mapping[str, Tensor] | None = None) -> float:
        """One local epoch of SGD, in place; with `towards`, of Ditto's personal objective around those weights."""
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        model.train()
        loss = torch.zeros(())
        for start in range(0, len(x), self.batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[start : start + self.batch]), y[start : start + self.batch])
            loss.backward()
            if towards is not None:
                for name, value in model.named_parameters():
                    value.grad.add_(value.detach() - towards[name], alpha=LAMBDA)
            optimizer.step()
        return float(loss.detach())


IMAGE = (1, 28, 28)
WORKLOADS = {
    "logistic": Workload(logistic, IMAGE, rounds=50),
    "mlp": Workload(mlp, IMAGE, rounds=20),
    "w1": Workload(small_cnn, IMAGE),
    "w2": Workload(large_cnn, (3, 32, 32), examples=50, clients=50, rounds=6),
    "ditto": Workload(small_cnn, IMAGE, ditto=True),
    "gru": Workload(WordGru, (LENGTH,), rounds=8, words=WORDS),
    "transformer": Workload(WordTransformer, (LENGTH,), rounds=8, words=WORDS),
    "many": Workload(tiny, (60,), examples=10, clients=100_000, rounds=50, cohort=1000),
}


def find_workload(name: str) -> Workload:
    """The workload of that name; ``w1@1000`` is ``w1`` with 1,000 clients and fewer or more rounds to match."""
    base, _, clients = name.partition("@")
    workload = WORKLOADS[base]
    if not clients:
        return workload
    rounds = max(4, min(4 * workload.rounds, workload.rounds * workload.clients // int(clients)))
    return replace(workload, clients=int(clients), rounds=rounds)


@dataclass(frozen=True)
class Job:
    """One run of one system.

    Attributes:
        workload: its name.
        rounds: how many, counting the first.
        processes: how many the system may train in.
        out: folder for what the run writes.
        dtype: ``float32``, or ``float64`` where systems are checked against each other: in single precision a unit
            near zero may or may not fire by a rounding error, and weights then differ by more than rounding.
    """

    workload: str
    rounds: int
    processes: int
    out: str
    dtype: str = "float32"

    def environment(self) -> dict[str, str]:
        """The variable by which the run's processes learn of it."""
        return {VARIABLE: json.dumps(asdict(self))}


def current_job() -> tuple[Job, Workload]:
    """What this process was started for."""
    job = Job(**json.loads(os.environ[VARIABLE]))
    return job, replace(find_workload(job.workload), dtype=getattr(torch, job.dtype))


@dataclass
class Record:
    """What a run writes down: when each round ended, the weights it started from and ended with.

    Attributes:
        initial: hash of the initial weights.
        note: how the system ran, where it chose that itself.
        ends: when each round ended, seconds since the epoch.
    """

    initial: str
    note: str = ""
    ends: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, model: nn.Module) -> Record:
        """A record of a run that starts from this model."""
        return cls(hashlib.sha256(flat(model).numpy().tobytes()).hexdigest())

    def round_ended(self) -> None:
        """Note the time."""
        self.ends.append(time.time())

    def write(self, job: Job, weights: Tensor, personal: Tensor | None = None) -> None:
        """Write the times, the final weights and, for Ditto, the personal ones of shape (clients, parameters)."""
        out = Path(job.out)
        np.save(out / "weights.npy", weights.numpy())
        if personal is not None:
            np.save(out / "personal.npy", personal.numpy())
        (out / "record.json").write_text(json.dumps(asdict(self)))


def flat(model: nn.Module) -> Tensor:
    """All parameters as one vector, in the order of the module."""
    return parameters_to_vector(model.parameters()).detach().clone()
