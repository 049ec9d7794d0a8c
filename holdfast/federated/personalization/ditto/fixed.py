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
from holdfast.federated.engine.cohort import Cohort
from holdfast.federated.engine.network import ClientBatch
from holdfast.federated.personalization.base import ROLE, Rider
from holdfast.federated.personalization.ditto.adaptive import CANDIDATES, SMALL_LAMBDA, DynamicDitto, ParallelDitto
from holdfast.federated.personalization.ditto.proximal import Anchor, refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds


@dataclass(frozen=True)
class Ditto(Rider):
    """Ditto with one lambda for all clients, or with a lambda that each client chooses.

    Attributes:
        lambda_: strength of the pull towards the shared model. `auto` lets each client choose among `candidates` at
            every step by its validation loss, `parallel` trains a model per candidate and chooses in the end.
        candidates: lambdas that clients choose from; by default 0.1, 1 and 2, or 0.05, 0.1 and 0.2 under a strong
            attack.
        anchor: pull towards the model `received` in this round, or, as an earlier version of the method did, towards
            the client's `local` copy of it, which moves during the round.
    """

    name: ClassVar[str] = "ditto"
    moves_by_gradient: ClassVar[bool] = True
    lambda_: float | Literal["auto", "parallel"] = "auto"
    candidates: tuple[float, ...] = ()
    anchor: Anchor = "received"

    def __post_init__(self) -> None:
        if not isinstance(self.lambda_, str):
            refuse_negative(self.lambda_)

    def facing(self, strong: bool) -> Rider:
        """With `auto` and `parallel` the method that chooses, with the candidates for such an attack."""
        if not isinstance(self.lambda_, str):
            return self
        choosing = DynamicDitto if self.lambda_ == "auto" else ParallelDitto
        return choosing(self.candidates or CANDIDATES[strong], SMALL_LAMBDA[strong], self.anchor)

    @property
    def strength(self) -> float:
        """Lambda, where it is a number.

        Raises:
            ConfigError: if clients choose it, which `facing` must settle first; `federate` does.
        """
        if isinstance(self.lambda_, str):
            raise ConfigError(f"lambda is {self.lambda_!r}; settle it by facing(strong), or give a number")
        return self.lambda_

    def check(self, settings: Rounds) -> None:
        """Refuse a pull that overshoots."""
        refuse_overshoot(self.strength, settings.personal_rate)

    @property
    def label(self) -> str:
        """The name with lambda, so that several can be compared in one run."""
        return f"{self.name}-{self.strength:g}"

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, cohort: Cohort) -> None:
        """``v <- v - eta (g + lambda (v - w))``."""
        pull = (self.strength, self._anchor(local, cohort))
        cohort.descend(rows, batch, cohort.personal_rate, pull, role=ROLE)

    def move(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, cohort: Cohort) -> None:
        """The same from a gradient."""
        direction = cohort.site.network.pulled(gradient, rows, (self.strength, self._anchor(local, cohort)))
        rows.sub_(direction, alpha=cohort.personal_rate)

    def _anchor(self, local: Tensor, cohort: Cohort) -> Tensor:
        return cohort.received if self.anchor == "received" else local


@dataclass(frozen=True)
class Local(Rider):
    """Training alone: Ditto with lambda 0, with the same participation and the same steps."""

    name: ClassVar[str] = "local"
    moves_by_gradient: ClassVar[bool] = True

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, cohort: Cohort) -> None:
        """``v <- v - eta g``."""
        cohort.descend(rows, batch, cohort.personal_rate, role=ROLE)

    def move(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, cohort: Cohort) -> None:
        """The same from a gradient."""
        rows.sub_(gradient, alpha=cohort.personal_rate)
