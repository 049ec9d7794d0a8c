"""Ditto: a personal model per client, kept close to the shared one (https://arxiv.org/abs/2012.04221, Algorithm 1).

Each client minimises ``F_k(v) + (lambda/2) ||v - w*||^2``. Lambda 0 is training alone, a large lambda is the shared
model. A small lambda protects from a corrupted shared model, a large one borrows strength from the others. The anchor
is the model received in this round. Nothing is sent but what the shared training sends anyway.

`Ditto.after` is the update rule, for every way to come by a lambda: fixed here, chosen by each client in
`holdfast.federated.personalization.ditto.adaptive`. Which of them runs is decided by
`holdfast.federated.personalization.factory.resolve`, once the attack is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.network import ClientBatch
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import AlongsidePersonalizer
from holdfast.federated.personalization.ditto.proximal import Anchor, refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds


@dataclass(frozen=True)
class Ditto(AlongsidePersonalizer):
    """Ditto with one lambda for all clients, or with a lambda that each client chooses.

    Attributes:
        lambda_: strength of the proximal term towards the shared model. `auto` lets each client choose among
            `candidates` at every step by its validation loss, `parallel` trains a model per candidate and chooses in
            the end.
        candidates: lambdas that clients choose from; by default 0.1, 1 and 2, or 0.05, 0.1 and 0.2 where the server's
            rule does not stand the malicious clients that are expected.
        strong_candidates: lambdas that they choose from in that case, where they are others than `candidates`.
        anchor: pull towards the model `received` in this round, or, as an earlier version of the method did, towards
            the client's `local` copy of it, which moves during the round.
    """

    name: ClassVar[str] = "ditto"
    lambda_: float | Literal["auto", "parallel"] = "auto"
    candidates: tuple[float, ...] = ()
    anchor: Anchor = "received"
    strong_candidates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.lambda_, str):
            refuse_negative(self.lambda_)

    @property
    def strength(self) -> float:
        """Lambda, where it is a number.

        Raises:
            ConfigError: if clients choose it: `resolve` gives the method that does, and `federate` calls it.
        """
        if isinstance(self.lambda_, str):
            raise ConfigError(f"lambda is {self.lambda_!r}, which personalization.factory.resolve must settle first")
        return self.lambda_

    @property
    def lambdas(self) -> tuple[float, ...]:
        """All lambdas that a client may have, ascending."""
        return (self.strength,)

    @property
    def label(self) -> str:
        """The name with lambda, so that several can be compared in one run."""
        return f"{self.name}-{self.strength:g}"

    def check(self, settings: Rounds) -> None:
        """Refuse a proximal term that overshoots."""
        refuse_overshoot(self.lambdas[-1], settings.personal_rate)

    def update(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """One local step of the personal models (Algorithm 1, line 6)."""
        rows.copy_(self.after(rows, gradient, self.strength, local, stack))

    def after(self, models: Tensor, gradient: Tensor, lambda_: float, local: Tensor, stack: StackedClients) -> Tensor:
        """The update rule ``v - eta (g + lambda (v - w))``, shape (clients, P).

        Args:
            models: v, shape (clients, P).
            gradient: g, of the clients' losses at v, shape (clients, P).
            lambda_: strength of the proximal term.
            local: the clients' copies of the shared model after their step, shape (clients, P).
            stack: the clients, with the model w that they received.
        """
        anchor = stack.received if self.anchor == "received" else local
        direction = stack.network.with_proximal(gradient, models, (lambda_, anchor))
        return models.sub(direction, alpha=stack.personal_rate)
