"""How benign clients fare: robustness is their mean, fairness their spread (Ditto, Definitions 1 and 2).

Malicious clients are left out of every number. The mean is given twice, over clients and pooled over test examples: the
printed tables of Ditto are pooled, its definition is over clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.federated.metrics.scoring import ClientScores


@dataclass(frozen=True, eq=False)
class ClientReport:
    """Scores of every client, and who of them counts.

    Attributes:
        scores: on the test data, ascending by client.
        benign: bool of shape (clients,).
    """

    scores: ClientScores
    benign: Tensor

    @property
    def counted(self) -> Tensor:
        """Clients in the numbers: benign, with test examples."""
        return self.benign & (self.scores.count > 0)

    @property
    def accuracies(self) -> Tensor:
        """Of the clients that count, float64."""
        return self.scores.accuracy[self.counted]

    @property
    def mean(self) -> float:
        """Mean accuracy over clients (Definition 1)."""
        return float(self.accuracies.mean())

    @property
    def pooled(self) -> float:
        """Accuracy over all test examples of the clients that count."""
        counted = self.counted
        return float(self.scores.correct[counted].sum() / self.scores.count[counted].sum())

    @property
    def std(self) -> float:
        """Spread of accuracy over clients, unweighted, without Bessel's correction."""
        return float(self.accuracies.std(correction=0))

    @property
    def variance(self) -> float:
        """Square of `std`."""
        return self.std**2

    @property
    def worst(self) -> float:
        """The lowest accuracy."""
        return float(self.accuracies.min())

    @property
    def worst_tenth(self) -> float:
        """Mean accuracy of the worst tenth of clients, one at least."""
        ordered = self.accuracies.sort().values
        return float(ordered[: max(len(ordered) // 10, 1)].mean())

    @property
    def loss(self) -> float:
        """Mean test loss over clients."""
        return float(self.scores.loss[self.counted].mean())

    @property
    def loss_std(self) -> float:
        """Spread of the test loss over clients (Definition 2)."""
        return float(self.scores.loss[self.counted].std(correction=0))

    def summary(self) -> dict[str, float]:
        """Every number by name."""
        names = ("mean", "pooled", "std", "variance", "worst", "worst_tenth", "loss", "loss_std")
        return {name: getattr(self, name) for name in names}

    def table(self) -> dict[str, list[float | int | bool]]:
        """A row per client, as columns: client, benign, accuracy, loss, count."""
        return {
            "client": self.scores.clients.tolist(),
            "benign": self.benign.tolist(),
            "accuracy": self.scores.accuracy.tolist(),
            "loss": self.scores.loss.tolist(),
            "count": self.scores.count.tolist(),
        }


def benign_of(malicious: Tensor, clients: int) -> Tensor:
    """Who is benign, bool of shape (clients,), from the ids of the malicious."""
    benign = torch.ones(clients, dtype=torch.bool)
    benign[malicious] = False
    return benign
