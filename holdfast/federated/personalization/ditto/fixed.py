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
from holdfast.federated.engine.network import ClientBatch
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import ROLE, AlongsidePersonalizer
from holdfast.federated.personalization.ditto.adaptive import CANDIDATES, SMALL_LAMBDA, DynamicDitto, ParallelDitto
from holdfast.federated.personalization.ditto.proximal import Anchor, refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds


@dataclass(frozen=True)
class Ditto(AlongsidePersonalizer):
    """Ditto with one lambda for all clients, or with a lambda that each client chooses.

    Attributes:
        lambda_: strength of the proximal term towards the shared model. `auto` lets each client choose among
            `candidates` at every step by its validation loss, `parallel` trains a model per candidate and chooses in
            the end.
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

    def facing(self, strong: bool) -> AlongsidePersonalizer:
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
        """Refuse a proximal term that overshoots."""
        refuse_overshoot(self.strength, settings.personal_rate)

    @property
    def label(self) -> str:
        """The name with lambda, so that several can be compared in one run."""
        return f"{self.name}-{self.strength:g}"

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """``v <- v - eta (g + lambda (v - w))``."""
        proximal = (self.strength, self._anchor(local, stack))
        stack.sgd_step(rows, batch, stack.personal_rate, proximal, role=ROLE)

    def move(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """The same from a gradient."""
        direction = stack.runtime.network.with_proximal(gradient, rows, (self.strength, self._anchor(local, stack)))
        rows.sub_(direction, alpha=stack.personal_rate)

    def _anchor(self, local: Tensor, stack: StackedClients) -> Tensor:
        return stack.received if self.anchor == "received" else local


@dataclass(frozen=True)
class Local(AlongsidePersonalizer):
    """Training alone: Ditto with lambda 0, with the same participation and the same steps."""

    name: ClassVar[str] = "local"
    moves_by_gradient: ClassVar[bool] = True

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """``v <- v - eta g``."""
        stack.sgd_step(rows, batch, stack.personal_rate, role=ROLE)

    def move(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """The same from a gradient."""
        rows.sub_(gradient, alpha=stack.personal_rate)
