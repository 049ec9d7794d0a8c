"""Ditto: a personal model per client, kept close to the shared one (https://arxiv.org/abs/2012.04221, Algorithm 1).

Each client minimises ``F_k(v) + (lambda/2) ||v - w*||^2``. Lambda 0 is training alone, a large lambda is the shared
model. A small lambda protects from a corrupted shared model, a large one borrows strength from the others. The anchor
is the model received in this round. Nothing is sent but what the shared training sends anyway.

A personal model starts from the shared model that its client receives when it first takes part, so that a few steps
are enough to be of use; the paper starts it from the initial weights, which is an option. A client takes part for the
first time when it has drawn no batch yet: that is all that is looked at, so a federation that is continued, or whose
clients are elsewhere, starts each model in the same place.

`Ditto.direction` is the update rule, for every way to come by a lambda: fixed here, chosen by each client in
`holdfast.federated.personalization.ditto.adaptive`. Which of them runs is decided by
`holdfast.federated.personalization.factory.resolve`, once the attack is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.personalization.base import AlongsidePersonalizer
from holdfast.federated.personalization.ditto.proximal import Anchor, refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds

if TYPE_CHECKING:
    from holdfast.federated.engine.network import ClientBatch, Network
    from holdfast.federated.engine.stacked_clients import StackedClients

#: What a personal model starts from: the `shared` model that its client receives first, or the `initial` weights.
Start = Literal["shared", "initial"]


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
        start: start a personal model from the `shared` model that its client receives when it first takes part, or,
            as the paper does, from the `initial` weights.
        steps: steps of a personal model in a round that its client takes part in; as many as the shared model takes
            there by default.
    """

    name: ClassVar[str] = "ditto"
    lambda_: float | Literal["auto", "parallel"] = "auto"
    candidates: tuple[float, ...] = ()
    anchor: Anchor = "received"
    strong_candidates: tuple[float, ...] = ()
    start: Start = "shared"
    steps: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.lambda_, str):
            refuse_negative(self.lambda_)
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"Ditto's steps are {self.steps}; give at least 1")
        if self.steps is not None and self.anchor == "local":
            raise ConfigError(
                "the anchor `local` moves with the shared model's steps, and Ditto's steps are set apart from them; "
                "leave out one of the two"
            )

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

    @property
    def uses_local(self) -> bool:
        """Only where that is what it is pulled towards."""
        return self.anchor == "local"

    def check(self, settings: Rounds) -> None:
        """Refuse a proximal term that overshoots."""
        refuse_overshoot(self.lambdas[-1], settings.personal_rate)

    def initial(self, network: Network) -> Tensor:
        """The initial model, as a row."""
        return self.row_of(network.initial)

    def row_of(self, model: Tensor) -> Tensor:
        """What a client's row holds when it starts from a model of shape (P,)."""
        return model

    @property
    def updates_from_gradient(self) -> bool:
        """Only where a row is from the first step on what the gradient is taken at, and steps are the shared ones."""
        as_shared = self.start == "initial" and self.steps is None
        return as_shared and type(self).step is Ditto.step and type(self).step_on is Ditto.step_on

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """A step on the batch that the shared model has just seen, or with the round's first all steps of its own."""
        first = batch.draws == 0
        if self.start == "shared" and first.any():
            rows[first] = self.row_of(stack.received)
        if self.steps is None:
            self.step_on(rows, batch, local, stack)
        elif bool((batch.draws == stack.drawn[: len(batch)]).all()):
            for own in stack.draw_anew(self.steps):
                self.step_on(rows, own, local, stack)

    def step_on(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """One step of personal models; arguments as of `step`."""
        super().step(rows, batch, local, stack)

    def update(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """One local step of the personal models (Algorithm 1, line 6)."""
        stack.descend(rows, self.direction(rows, gradient, self.strength, local, stack), stack.personal_rate)

    def direction(
        self, models: Tensor, gradient: Tensor, lambda_: float, local: Tensor, stack: StackedClients
    ) -> Tensor:
        """The update rule's ``g + lambda (v - w)``, shape (clients, P); `gradient` is never changed.

        Args:
            models: v, shape (clients, P).
            gradient: g, of the clients' losses at v, shape (clients, P).
            lambda_: strength of the proximal term.
            local: the clients' copies of the shared model after their step, shape (clients, P).
            stack: the clients, with the model w that they received.
        """
        anchor = stack.received if self.anchor == "received" else local
        return stack.network.with_proximal(gradient, models, (lambda_, anchor))
