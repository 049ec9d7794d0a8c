"""Ditto: a personal model per client, kept close to the shared one (https://arxiv.org/abs/2012.04221, Algorithm 1).

Each client minimises ``F_k(v) + (lambda/2) ||v - w*||^2``. Lambda 0 is training alone, a large lambda is the shared
model. A small lambda protects from a corrupted shared model, a large one borrows strength from the others. The anchor
is the model received in this round. Nothing is sent but what the shared training sends anyway.

A personal model starts from the shared model that its client receives when it first takes part, so that a few steps
are enough to be of use; the paper starts it from the initial weights, which is an option. A client takes part for the
first time when it has drawn no batch yet: that is all that is looked at, so a federation that is continued, or whose
clients are elsewhere, starts each model in the same place.

Personal models may be whole ones, or some layers on top of the shared model's others: those are then the shared model's
of the round while the client trains, and its newest whenever the model is used.

`Ditto.direction` is the update rule, for every way to come by a lambda: fixed here, chosen by each client in
`holdfast.federated.personalization.ditto.adaptive`. Which of them runs is decided by
`holdfast.federated.personalization.factory.resolve`, once the attack is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.personalization.base import AlongsidePersonalizer
from holdfast.federated.personalization.distances import Distance, divergence_gradient, fisher_diagonal
from holdfast.federated.personalization.ditto.proximal import Anchor, refuse_negative, refuse_overshoot
from holdfast.federated.personalization.partial.parts import columns_besides, columns_of_layers
from holdfast.federated.settings import Rounds

if TYPE_CHECKING:
    from holdfast.federated.engine.client_batch import ClientBatch
    from holdfast.federated.engine.local_training import LocalTraining
    from holdfast.federated.engine.network import Network
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
            rule does not withstand the malicious clients that are expected.
        strong_candidates: lambdas that they choose from in that case, if not `candidates`.
        anchor: pull towards the model `received` in this round, or, as an earlier version of the method did, towards
            the client's `local` copy of it, which moves during the round.
        start: start a personal model from the `shared` model that its client receives when it first takes part, or,
            as the paper does, from the `initial` weights.
        steps: steps of a personal model in a round that its client takes part in; as many as the shared model takes
            there by default.
        layers: layers that are personal, by name, with `head` for the last linear one; the shared model's take the
            place of all others. All are personal by default.
        distance: what lambda multiplies half of: the squared distance of parameters (`l2`), that distance weighed by
            the Fisher information on the client's data (`ewc`), or the symmetrised KL divergence of predictions
            (`skl`), see Appendix C.
    """

    name: ClassVar[str] = "ditto"
    lambda_: float | Literal["auto", "parallel"] = "auto"
    candidates: tuple[float, ...] = ()
    anchor: Anchor = "received"
    strong_candidates: tuple[float, ...] = ()
    start: Start = "shared"
    steps: int | None = None
    layers: tuple[str, ...] = ()
    distance: Distance = "l2"

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
        if self.distance != "l2" and self.anchor == "local":
            raise ConfigError(
                f"the distance {self.distance} is measured from the received model, and the anchor is `local`; leave "
                "out one of the two"
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
        return f"{self.name}-{self.strength:g}{self.variant}"

    @property
    def variant(self) -> str:
        """What a label adds for personal layers and another distance."""
        return "".join(f"-{part}" for part in (*((self.distance,) if self.distance != "l2" else ()), *self.layers))

    @property
    def uses_local(self) -> bool:
        """Only where that is what it is pulled towards."""
        return self.anchor == "local"

    def check(self, settings: Rounds) -> None:
        """Refuse a proximal term that overshoots."""
        if self.distance == "l2":
            refuse_overshoot(self.lambdas[-1], settings.personal_rate)

    def check_network(self, network: Network) -> None:
        """Refuse layers that are not there, and predictions that are no classes."""
        super().check_network(network)
        if self.layers:
            columns_of_layers(network, self.layers, self.name)
        if self.distance == "skl" and network.task == "regression":
            raise ConfigError(f"the distance skl compares predicted classes, and {network.called} has none; use l2")

    def initial(self, network: Network) -> Tensor:
        """The initial model, as a row."""
        return self.row_of(network.initial)

    def row_of(self, model: Tensor) -> Tensor:
        """What a client's row holds when it starts from a model of shape (P,)."""
        return model

    @property
    def updates_from_gradient(self) -> bool:
        """Only where a row is from the first step on what the gradient is taken at, and steps are the shared ones."""
        as_shared = self.start == "initial" and self.steps is None and not self.layers
        return as_shared and type(self).step is Ditto.step and type(self).step_on is Ditto.step_on

    def step(self, rows: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """A step on the batch that the shared model has just seen, or with the round's first all steps of its own."""
        first = batch.draws == 0
        if self.start == "shared" and first.any():
            rows[first] = self.row_of(stack.received)
        self.fill(rows, stack.received, stack.network)
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
        away = self.away(rows, batch, stack)
        stack.descend(rows, self.direction(rows, gradient, self.strength, local, stack, away=away), stack.personal_rate)

    def models(self, rows: Tensor, shared: Tensor, training: LocalTraining, clients: Tensor) -> Tensor:
        """The rows; where only some layers are personal, with the others of the shared model as it is now."""
        self.fill(rows, shared, training.network)
        return rows

    def models_in(self, rows: Tensor, size: int) -> Sequence[Tensor]:
        """Views of the models of `size` numbers in rows of shape (clients, width)."""
        return (rows[:, :size],)

    def fill(self, rows: Tensor, shared: Tensor, network: Network) -> None:
        """Put the shared model into what is not personal, in place."""
        if self.layers:
            rest = self._rest(network)
            for models in self.models_in(rows, network.size):
                models[:, rest] = shared[rest]

    def _rest(self, network: Network) -> Tensor:
        """The places of what is not personal."""
        return columns_besides(network, columns_of_layers(network, self.layers, self.name))

    def away(self, models: Tensor, batch: ClientBatch, stack: StackedClients) -> Tensor | None:
        """Gradient of a distance from the received model, shape (clients, P); None for the straight one."""
        if self.distance == "ewc":
            if "fisher" not in stack.kept:
                stack.kept["fisher"] = fisher_diagonal(stack)
            return stack.kept["fisher"][: len(models)] * (models - stack.received)
        if self.distance == "skl":
            return divergence_gradient(stack.network, models, stack.received.repeat(len(models), 1), batch)
        return None

    def direction(
        self,
        models: Tensor,
        gradient: Tensor,
        lambda_: float,
        local: Tensor,
        stack: StackedClients,
        *,
        away: Tensor | None,
    ) -> Tensor:
        """The update rule's ``g + lambda (v - w)``, shape (clients, P); `gradient` is never changed.

        Args:
            models: v, shape (clients, P).
            gradient: g, of the clients' losses at v, shape (clients, P).
            lambda_: strength of the proximal term.
            local: the clients' copies of the shared model after their step, shape (clients, P).
            stack: the clients, with the model w that they received.
            away: what takes the place of ``v - w``, see `away`.
        """
        if away is None:
            anchor = stack.received if self.anchor == "received" else local
            direction = stack.network.with_proximal(gradient, models, (lambda_, anchor))
        else:
            direction = torch.add(gradient, away, alpha=lambda_) if lambda_ else gradient
        return direction.index_fill(1, self._rest(stack.network), 0.0) if self.layers else direction
