"""The surrogate S(q): a generated federation for when real ones can't be had, never to be named as one of them.

Every client has its own linear rule near a common one (feature shift), and may emit only q of ten classes (label skew
where q < 10). Softmax regression on it shows what the papers' tables show: global against local against personalised.
The same generator makes federations of a hundred thousand small clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import Rows, rolling_classes
from holdfast.errors import ConfigError
from holdfast.streams import data_stream

_FEATURES, _CLASSES = 20, 10
_SHIFT, _NOISE = 0.5, 0.3
_CHUNK = 1024


def generate(counts: Rows, allowed: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], Rows]:
    """Draw every client's rule and as many examples as asked.

    Args:
        counts: examples per client, shape (clients,).
        allowed: q, how many classes a client may emit; client k the classes k to k+q-1 modulo 10.
        rng: random stream.

    Returns:
        Inputs, (n, 20), and labels, (n,), client after client.
    """
    common = rng.standard_normal((_FEATURES, _CLASSES))
    owned = rolling_classes(len(counts), allowed, _CLASSES)
    inputs, labels = np.empty((int(counts.sum()), _FEATURES), np.float32), np.empty(int(counts.sum()), np.int64)
    done = 0
    for start in range(0, len(counts), _CHUNK):
        some = counts[start : start + _CHUNK]
        rules = common + _SHIFT * rng.standard_normal((len(some), _FEATURES, _CLASSES))
        owner, n = np.repeat(np.arange(len(some)), some), int(some.sum())
        x = rng.standard_normal((n, _FEATURES))
        scores = np.einsum("nf,nfc->nc", x, rules[owner]) + _NOISE * rng.gumbel(size=(n, _CLASSES))
        may = np.zeros((len(some), _CLASSES), bool)
        np.put_along_axis(may, owned[start : start + _CHUNK], True, axis=1)
        inputs[done : done + n] = x
        labels[done : done + n] = np.where(may[owner], scores, -np.inf).argmax(1)
        done += n
    return inputs, labels


def generated_clients(train: Rows, validation: Rows, test: Rows, allowed: int, rng: np.random.Generator) -> Clients:
    """Clients whose three parts come from the same rule, with the given numbers of examples per client."""
    inputs, labels = generate(train + validation + test, allowed, rng)
    counts = np.stack([train, validation, test], 1).ravel()
    which = np.repeat(np.tile(np.arange(3), len(train)), counts)

    def part(number: int, sizes: Rows) -> ClientPart:
        chosen = which == number
        return ClientPart.of_counts(
            torch.from_numpy(inputs[chosen]), torch.from_numpy(labels[chosen]), torch.from_numpy(sizes)
        )

    return Clients(part(0, train), part(1, validation), part(2, test), _CLASSES)


@register_federation
@dataclass(frozen=True)
class Surrogate(FederatedData):
    """S(q): 100 clients with rules of their own.

    Training sets are LogNormal(3, 1) + 10 scaled to a mean of 60, plus 5; there are 100 test examples per client and,
    besides, a tenth of the training examples for validation.

    Attributes:
        q: classes that a client may emit; 10 is feature shift only, 5 label skew as well.
    """

    name = "surrogate"
    summary = "S(q): 100 generated clients, 10 classes, feature shift and label skew; no download, not a real data set"
    recipe: ClassVar[Any] = TrainingRecipe("softmax", 0.1, 16, rounds=600, cohort=10)

    q: int = 5

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Generate the clients; `root` isn't looked at."""
        rng = data_stream(seed, "surrogate")
        raw = rng.lognormal(3, 1, 100) + 10
        train = np.floor(60 * raw / raw.mean()).astype(np.int64) + 5
        return generated_clients(train, train // 10, np.full(100, 100), self.q, rng)


@register_federation
@dataclass(frozen=True)
class SyntheticMany(FederatedData):
    """The generator of the surrogate for very many small clients: what a federation of phones looks like to memory.

    Attributes:
        clients: how many.
        examples: training examples of the average client; each has at least two and two for the test.
    """

    name = "synthetic-many"
    summary = "100,000 generated clients of a dozen examples, 10 classes; for scale, not for science"
    recipe: ClassVar[Any] = TrainingRecipe("softmax", 0.1, 8, rounds=50, cohort=100)

    clients: int = 100_000
    examples: int = 12

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Generate the clients; `root` isn't looked at."""
        if self.clients < 1 or self.examples < 2:
            raise ConfigError(
                f"{self.clients} clients of {self.examples} examples make no federation; give at least one client and "
                "two examples"
            )
        rng = data_stream(seed, "synthetic-many")
        train = 2 + rng.poisson(self.examples - 2, self.clients)
        return generated_clients(train, np.zeros_like(train), np.full(self.clients, 2), 5, rng)
