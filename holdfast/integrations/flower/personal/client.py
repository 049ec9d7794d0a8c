"""A round of a client with a personal model: a method of `holdfast.federated.personalization` on one client alone.

Here is what the mod does apart from Flower: rows before, rows after, and what a joint method sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from holdfast.federated.engine.second_vector import SecondVector
from holdfast.federated.personalization.base import (
    AlongsidePersonalizer,
    JointPersonalizer,
    Personalizer,
    PostHocPersonalizer,
)
from holdfast.federated.settings import Rounds
from holdfast.integrations.flower.personal.descent import Recipe
from holdfast.integrations.flower.personal.lone_client import ONE, Descents, LoneTraining, no_examples
from holdfast.integrations.flower.personal.lone_network import LoneNetwork
from holdfast.integrations.flower.personal.memory import PersonalState


@dataclass(frozen=True, eq=False)
class PersonalClient:
    """A client that has just received the shared model.

    Attributes:
        network: the module with the received weights.
        settings: with the learning rates.
        recipe: how optimizers are made; None is plain steps.
        batches: gives the mini-batches of the round.
        held_out: gives mini-batches to choose by.
        share: of the clients that take part in a round.
        state: what the client remembers.
    """

    network: LoneNetwork
    settings: Rounds
    recipe: Recipe | None
    batches: Callable[[], Iterable[Any]]
    held_out: Callable[[], Iterable[Any]]
    share: float
    state: PersonalState

    def train(self, method: AlongsidePersonalizer | JointPersonalizer) -> tuple[PersonalState, Tensor | None]:
        """One round of a method.

        Returns:
            What the client remembers now, and the update that a joint method sends, shape (P,).
        """
        received = self.network.initial
        self.network.put_rest(self.state.rest)
        training = self._training(self.state.optimizers)
        row = self._row(method)[None].clone()
        drawn, steps = torch.tensor([self.state.drawn]), training.steps(ONE)
        stack = training.stacked(ONE, received, drawn=drawn, steps=steps)
        sent = None
        if isinstance(method, JointPersonalizer):
            sent = method.train(stack, row)[0]
            draws = int(method.draws(steps))
        else:
            local, draws = stack.copies(), int(steps)
            for batch in stack.batches():
                if method.uses_local:
                    stack.sgd_step(local, batch, stack.learning_rate)
                method.step(row, batch, local, stack)
        after = replace(
            self.state,
            rows={**self.state.rows, method.label: row[0]},
            rest=self.network.rest(),
            optimizers=training.descents.end_round(),
            drawn=self.state.drawn + draws,
            rounds=self.state.rounds + 1,
        )
        return after, sent

    def train_corrected(self, second: SecondVector, beside: Tensor, label: str) -> tuple[PersonalState, Tensor, Tensor]:
        """One round of the shared model with a second vector; gradient steps, each with the vector's correction.

        Args:
            second: what the client does with it.
            beside: the one that was received, shape (P,).
            label: of the row that the client remembers.

        Returns:
            What the client remembers now, its update and the second vector that it sends, both of shape (P,).
        """
        received = self.network.initial
        self.network.put_rest(self.state.rest)
        training = self._training({})
        steps = training.steps(ONE)
        stack = training.stacked(ONE, received, drawn=torch.tensor([self.state.drawn]), steps=steps)
        row = self.state.rows.get(label, torch.zeros_like(received))[None]
        local, correction = stack.copies(), second.correction(row, beside, stack)
        for batch in stack.batches():
            stack.sgd_step(local, batch, stack.learning_rate)
            local.sub_(correction, alpha=stack.learning_rate)
        row, sent = second.after(row, beside, local, stack)
        after = replace(
            self.state,
            rows={label: row[0]},
            rest=self.network.rest(),
            drawn=self.state.drawn + int(steps),
            rounds=self.state.rounds + 1,
        )
        return after, local[0] - received, sent[0]

    def tune(self, method: PostHocPersonalizer, followed: Personalizer | None) -> PersonalState:
        """Train the personal model of a post-hoc method, from the received model or from that of the method before."""
        self.network.put_rest(self.state.rest if followed else {})
        training = self._training({})
        steps = training.post_hoc_steps(method.epochs, ONE)
        start = None if followed is None else self.model(followed)[None]
        stack = training.stacked(ONE, self.network.initial, drawn=torch.zeros_like(ONE), steps=steps, start=start)
        row = method.personalize(stack)[0]
        return replace(
            self.state,
            rows={**self.state.rows, method.label: row},
            rest=self.network.rest(),
        )

    def model(self, method: Personalizer) -> Tensor:
        """The personal model, shape (P,); the received one where there is none yet."""
        if method.label not in self.state.rows:
            return self.network.initial
        row = self.state.rows[method.label][None].clone()
        return method.models(row, self.network.initial, self._training({}), ONE)[0]

    def state_dict(self, method: Personalizer) -> dict[str, Tensor]:
        """The same as a state dict."""
        row = self.model(method)
        self.network.put_rest(self.state.rest)
        return self.network.state_dict(row)

    def _row(self, method: Personalizer) -> Tensor:
        return self.state.rows.get(method.label, method.initial(self.network))

    def _training(self, optimizers: Mapping[str, Any]) -> LoneTraining:
        return LoneTraining(
            no_examples(),
            self.network,
            self.settings,
            batches=self.batches,
            held_out=self.held_out,
            descents=Descents(self.recipe, self.network, optimizers),
            share=self.share,
        )
