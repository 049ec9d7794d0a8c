"""How benign clients fare: robustness is their mean, fairness their spread (Ditto, Definitions 1 and 2).

Malicious clients are left out of every number. The mean is given twice, over clients and pooled over test examples: the
printed tables of Ditto are pooled, its definition is over clients. Clients are scored by accuracy, or by what the task
has instead: a mean squared error, of which the worst is the highest, or a score of the user's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart
from holdfast.federated.engine.criterion import ACCURACY, Criterion
from holdfast.federated.metrics.scoring import ClientScores


@dataclass(frozen=True, eq=False)
class Targets:
    """What a constant would be wrong by, for R2.

    Attributes:
        means: of each client's targets, float64 of shape (clients, numbers of a target).
        variances: of them, without Bessel's correction, of the same shape.
    """

    means: Tensor
    variances: Tensor

    @classmethod
    def of(cls, part: ClientPart) -> Targets:
        """Of the targets of each client, zeros where it has none."""
        values = part.labels.double().reshape(len(part.labels), -1)
        owners, counts = part.owners(), part.counts.clamp(min=1)[:, None]
        zeros = torch.zeros(len(part), values.shape[1], dtype=torch.float64)
        means = zeros.index_add(0, owners, values) / counts
        return cls(means, zeros.index_add(0, owners, (values - means[owners]).square()) / counts)


@dataclass(frozen=True, eq=False)
class ClientReport:
    """Scores of every client, and who of them counts.

    Attributes:
        scores: on the test data, ascending by client.
        benign: bool of shape (clients,).
        measure: what clients are scored by.
        higher_is_better: whether a high score is a good one.
        targets: of a regression.
    """

    scores: ClientScores
    benign: Tensor
    measure: str = ACCURACY
    higher_is_better: bool = True
    targets: Targets | None = None

    @classmethod
    def of(cls, scores: ClientScores, benign: Tensor, criterion: Criterion, part: ClientPart) -> ClientReport:
        """The report of scores by a criterion, on the examples of `part`."""
        targets = Targets.of(part) if criterion.squared_error else None
        return cls(scores, benign, criterion.measure, criterion.higher_is_better, targets)

    @property
    def counted(self) -> Tensor:
        """Clients in the numbers: benign, with test examples."""
        return self.benign & (self.scores.count > 0)

    @property
    def accuracies(self) -> Tensor:
        """Of the clients that count, float64; their mean scores where they are not scored by accuracy."""
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
    def mean_minus_std(self) -> float:
        """Mean accuracy minus its spread, by which Ditto's earlier version orders methods; errors get it added."""
        return self.mean - self.std if self.higher_is_better else self.mean + self.std

    @property
    def worst(self) -> float:
        """The lowest accuracy, or the highest error; not a number, as the others, where no client counts."""
        ordered = self._from_the_worst
        return float(ordered[0]) if len(ordered) else math.nan

    @property
    def worst_tenth(self) -> float:
        """Mean accuracy of the worst tenth of clients, one at least."""
        ordered = self._from_the_worst
        return float(ordered[: max(len(ordered) // 10, 1)].mean())

    @property
    def loss(self) -> float:
        """Mean test loss over clients."""
        return float(self.scores.loss[self.counted].mean())

    @property
    def loss_std(self) -> float:
        """Spread of the test loss over clients (Definition 2)."""
        return float(self.scores.loss[self.counted].std(correction=0))

    @property
    def client_r2(self) -> Tensor:
        """R2 of each client of a regression that counts, float64: 1 - error / variance of its targets.

        Not a number for a client whose targets are all the same.
        """
        assert self.targets is not None, "R2 is for a regression"
        variances = self.targets.variances[self.counted].mean(1)
        return torch.where(variances > 0, 1 - self.accuracies / variances, torch.nan)

    @property
    def r2(self) -> float:
        """R2 over all test examples of the clients that count, against the mean of all their targets."""
        assert self.targets is not None, "R2 is for a regression"
        counted = self.counted
        weights = self.scores.count[counted].double()
        weights = (weights / weights.sum())[:, None]
        means, variances = self.targets.means[counted], self.targets.variances[counted]
        about = (means - (weights * means).sum(0)).square()
        return 1 - self.pooled / float((weights * (variances + about)).sum(0).mean())

    @property
    def _from_the_worst(self) -> Tensor:
        return self.accuracies.sort(descending=not self.higher_is_better).values

    def summary(self) -> dict[str, float]:
        """Every number by name."""
        names = ["mean", "pooled", "std", "variance", "mean_minus_std", "worst", "worst_tenth", "loss", "loss_std"]
        names += ["r2"] if self.targets is not None else []
        return {name: getattr(self, name) for name in names}

    def table(self) -> dict[str, list[float | int | bool]]:
        """A row per client, as columns: client, benign, accuracy (or the mean score), loss, count."""
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
