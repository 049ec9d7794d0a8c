"""Whether clients are better off with models of their own, and what may be the reason where they are not.

Every client is compared with itself: the accuracy of its own model minus that of the shared one, on its test data. A
personal model may well be the worse one: it has seen one client's data only, in the rounds of that client only, and
how strongly it is pulled towards the shared model was chosen by a few examples. Where it is, the reasons that are
offered are read off what was observed in this federation, and nothing is claimed beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.federated.metrics.client_report import ClientReport

#: Fewer personal steps than this, or validation examples to choose by, are few.
FEW_STEPS, FEW_VALIDATION = 50, 20


@dataclass(frozen=True)
class PersonalGain:
    """Personal models against the shared one, client by client.

    Attributes:
        label: of the method.
        clients: benign clients with test data and a model of their own.
        better: those of them whose own model is more accurate than the shared one.
        worse: those whose own model is less accurate.
        mean: mean difference in that measure, positive where the own model is the better one.
        error: its standard error over clients.
        reasons: what may be the reason, where the mean is negative.
        measure: what clients are compared by.
    """

    label: str
    clients: int
    better: int
    worse: int
    mean: float
    error: float
    reasons: tuple[str, ...] = ()
    measure: str = "accuracy"

    @classmethod
    def of(
        cls, label: str, personal: ClientReport, shared: ClientReport, trained: Tensor, observed: Observed
    ) -> PersonalGain | None:
        """Compare; None where no client that counts has a model of its own.

        Args:
            label: of the method.
            personal: how clients fare with its models.
            shared: how they fare with the shared model.
            trained: who has a model of its own, bool of shape (clients,).
            observed: what may explain the difference.
        """
        counted = shared.counted & trained
        if not counted.any():
            return None
        difference = (personal.scores.accuracy - shared.scores.accuracy)[counted]
        if not shared.higher_is_better:
            difference = -difference  # a smaller error is the better one
        mean = float(difference.mean())
        error = float(difference.std()) / len(difference) ** 0.5 if len(difference) > 1 else 0.0
        better, worse = int((difference > 0).sum()), int((difference < 0).sum())
        reasons = tuple(observed.reasons(counted)) if mean < 0 else ()
        return cls(label, len(difference), better, worse, mean, error, reasons, shared.measure)

    def sentence(self) -> str:
        """For whom it is better or worse and by how much, and what may be the reason."""
        counts = (
            f"{self.label} is better than the shared model for {self.better} of {self.clients} clients and worse for "
            f"{self.worse}, by {self._shown(self.mean, '+')} on average (standard error {self._shown(self.error)})."
        )
        return counts + (f" It may be that {'; that '.join(self.reasons)}." if self.reasons else "")

    def _shown(self, value: float, sign: str = "") -> str:
        if self.measure == "accuracy":
            return f"{100 * value:{sign}.1f} points" if sign else f"{100 * value:.1f}"
        return f"{value:{sign}.3g} of {self.measure}" if sign else f"{value:.3g}"

    def record(self) -> dict[str, Any]:
        """As a run's record has it."""
        return {
            "clients": self.clients,
            "better": self.better,
            "worse": self.worse,
            "mean": self.mean,
            "standard_error": self.error,
            "reasons": list(self.reasons),
            "sentence": self.sentence(),
        }


@dataclass(frozen=True, eq=False)
class Observed:
    """What a federation knows that may explain why personal models are worse.

    Attributes:
        steps: of each personal model, int64 of shape (clients,).
        joined: rounds that each client took part in, int64 of shape (clients,); None where they don't matter.
        rounds: rounds in all.
        validation: validation examples of each client, int64 of shape (clients,).
        from_initial: whether personal models that could start from the shared model started from the initial weights.
        candidates: lambdas that clients chose from; none where they did not choose.
        chosen: lambda of each client, float64 of shape (clients,), not a number where it is not known.
        enough: validation examples from which on a client chooses.
    """

    steps: Tensor
    joined: Tensor | None
    rounds: int
    validation: Tensor
    from_initial: bool = False
    candidates: Sequence[float] = ()
    chosen: Tensor | None = None
    enough: int = 0

    def reasons(self, counted: Tensor) -> list[str]:
        """Clauses, the likeliest first, for the clients that count."""
        found = [self._few_steps(counted)]
        if self.candidates:
            found += [self._edge(counted), self._little_validation(counted)]
        return [clause for clause in found if clause is not None]

    def _few_steps(self, counted: Tensor) -> str | None:
        steps, start = _median(self.steps[counted]), " from the initial weights" if self.from_initial else ""
        remedy = "give more steps to each" + (", or start from the shared model" if self.from_initial else "")
        if self.joined is not None and 2 * _median(self.joined[counted]) < self.rounds:
            return (
                f"the shared model went on without them, since half of the clients took part in at most "
                f"{_median(self.joined[counted])} of {self.rounds} rounds, with {steps} personal steps{start} "
                f"(a larger cohort, or {remedy})"
            )
        if steps < FEW_STEPS:
            return f"half of the personal models took at most {steps} steps{start} ({remedy})"
        return None

    def _edge(self, counted: Tensor) -> str | None:
        if self.chosen is None or len(self.candidates) < 2:
            return None
        able = counted & self.chosen.isfinite() & (self.validation >= self.enough)
        for edge, word in ((max(self.candidates), "larger"), (min(self.candidates), "smaller")):
            at_edge = int((self.chosen[able] == edge).sum())
            if 2 * at_edge > int(able.sum()):
                return (
                    f"lambda is at the edge of what clients chose from, {edge:g} for {at_edge} of {int(able.sum())} "
                    f"(offer {word} candidates)"
                )
        return None

    def _little_validation(self, counted: Tensor) -> str | None:
        median, unable = _median(self.validation[counted]), int((self.validation[counted] < self.enough).sum())
        if median >= FEW_VALIDATION:
            return None
        fixed = f", and {unable} had too few to choose at all" if unable else ""
        return (
            f"half of the clients chose lambda by at most {median} validation examples{fixed} (give one lambda to all)"
        )


def _median(values: Tensor) -> int:
    return int(torch.median(values))
