"""Ditto: a personal model per client, pulled towards the shared one (Ditto, Algorithms 1 and 2).

Each client minimises ``F_k(v) + (lambda/2) ||v - w*||^2``. Lambda 0 is training alone, a large lambda is the shared
model. A small lambda protects from a corrupted shared model, a large one borrows strength from the others. The anchor
is the model received in this round. Nothing is sent but what the shared training sends anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.cohort import Cohort
from holdfast.federated.network import ClientBatch
from holdfast.federated.personalization.base import Rider, Tuner
from holdfast.federated.settings import Rounds


@dataclass(frozen=True)
class Ditto(Rider):
    """Ditto with one lambda for all clients.

    Attributes:
        lambda_: strength of the pull towards the shared model.
        anchor: pull towards the model `received` in this round, or, as an earlier version of the method did, towards
            the client's `local` copy of it, which moves during the round.
    """

    name: ClassVar[str] = "ditto"
    lambda_: float = 1.0
    anchor: Literal["received", "local"] = "received"

    def __post_init__(self) -> None:
        if not self.lambda_ >= 0:
            raise ConfigError(f"lambda is {self.lambda_}; give 0 or more")

    def check(self, settings: Rounds) -> None:
        """Refuse a pull that overshoots: the distance to the anchor is multiplied by 1 - eta lambda in each step."""
        if settings.personal_rate * self.lambda_ >= 2:
            raise ConfigError(
                f"lambda {self.lambda_:g} times the learning rate {settings.personal_rate:g} is 2 or more, so personal "
                "models diverge; lower one of them"
            )

    @property
    def label(self) -> str:
        """The name with lambda, so that several can be compared in one run."""
        return f"{self.name}-{self.lambda_:g}"

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, cohort: Cohort) -> None:
        """``v <- v - eta (g + lambda (v - w))``; at lambda 0 the anchor is not looked at, so it may be infinite."""
        gradient = cohort.gradient(rows, batch, self.name)
        if self.lambda_:
            anchor = cohort.received if self.anchor == "received" else local
            gradient.add_(rows - anchor, alpha=self.lambda_)
        rows.sub_(gradient, alpha=cohort.personal_rate)


@dataclass(frozen=True)
class Local(Rider):
    """Training alone: Ditto with lambda 0, with the same participation and the same steps."""

    name: ClassVar[str] = "local"

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, cohort: Cohort) -> None:
        """``v <- v - eta g``."""
        rows.sub_(cohort.gradient(rows, batch, "ditto"), alpha=cohort.personal_rate)


@dataclass(frozen=True)
class FineTuning(Tuner):
    """Train the final shared model further on each client; with a lambda it is Ditto's second solver.

    Attributes:
        lambda_: strength of the pull towards the shared model; 0 is plain fine-tuning.
    """

    name: ClassVar[str] = "finetuning"
    lambda_: float = 0.0

    @property
    def label(self) -> str:
        """The name, with lambda where there is one."""
        return f"{self.name}-{self.lambda_:g}" if self.lambda_ else self.name

    def tune(self, cohort: Cohort) -> Tensor:
        """``v <- v - eta (g + lambda (v - w*))`` from w*."""
        models = cohort.copies()
        for batch in cohort.batches():
            now = models[: len(batch)]
            gradient = cohort.gradient(now, batch, self.name)
            if self.lambda_:
                gradient.add_(now - cohort.received, alpha=self.lambda_)
            now.sub_(gradient, alpha=cohort.personal_rate)
        return models
