"""One client in its owner's own training loop, as the simulator's methods see it.

`LoneTraining` and `LoneStack` answer for a client what `LocalTraining` and `StackedClients` answer in the simulator:
the methods of `holdfast.federated.personalization` run on them as they are. Mini-batches are those that the owner's
function gives, in its order; a method that wants more of them begins again at the first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError, DataError
from holdfast.federated.engine.adam import Adam
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.proximal import ProximalTerm
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.metrics.scoring import PartName
from holdfast.integrations.flower.personal.descent import Descent, Recipe
from holdfast.integrations.flower.personal.lone_network import LoneBatch, LoneNetwork, examples_in

#: The only client there is.
ONE = torch.zeros(1, dtype=torch.int64)
#: What the optimizer of the client's copy of the shared model is called; it starts anew in every round.
_SHARED = "shared"


class Descents:
    """The optimizers of a client's models, made when first used.

    Args:
        recipe: makes them; None is plain steps, which remember nothing.
        network: whose rows they move.
        states: what they remembered, by the model's name.
    """

    def __init__(self, recipe: Recipe | None, network: LoneNetwork, states: Mapping[str, Any]) -> None:
        self.recipe, self._network, self._states = recipe, network, states
        self._by_model: dict[str, Descent] = {}
        self._attempts: dict[Hashable, Descent] = {}

    def of(self, model: Hashable) -> Descent:
        """The optimizer of a model."""
        name = str(model)
        if name not in self._by_model and self.recipe is not None:
            self._by_model[name] = Descent(self.recipe, self._network)
            if name in self._states:
                self._by_model[name].load_state_dict(self._states[name])
        return self._by_model[name]

    def attempt(self, attempt: Hashable) -> Descent:
        """One that remembers what the only model's does, for a step that may not be taken."""
        self._attempts[attempt] = self.of("").fork()
        return self._attempts[attempt]

    def keep(self, attempt: Hashable) -> None:
        """The step that was taken."""
        if self._attempts:
            self._by_model[""] = self._attempts[attempt]
            self._attempts.clear()

    def end_round(self) -> dict[str, Any]:
        """What they remember, to be kept until the next round."""
        for descent in self._by_model.values():
            descent.end_round()
        fresh = {name: each.state_dict() for name, each in self._by_model.items() if name != _SHARED}
        return {**self._states, **fresh}


@dataclass(frozen=True, eq=False)
class LoneTraining(LocalTraining):
    """What a client trains with.

    Attributes:
        batches: gives the mini-batches of the round, from the first on, whenever it is called.
        held_out: gives mini-batches to choose by; none without.
        descents: the optimizers.
        share: of the clients that take part in a round.
    """

    batches: Callable[[], Iterable[Any]] = tuple
    held_out: Callable[[], Iterable[Any]] = tuple
    descents: Descents = field(kw_only=True)
    share: float = 1.0

    @property
    def own_network(self) -> LoneNetwork:
        """The network, as what it is."""
        assert isinstance(self.network, LoneNetwork)
        return self.network

    @property
    def participation(self) -> float:
        """Share of the clients that take part in a round, as the client was told."""
        return self.share

    def counts(self, part: PartName, clients: Tensor) -> Tensor:
        """Examples in the mini-batches of a part, int64 of shape (1,)."""
        return torch.tensor([sum(examples_in(batch) for batch in self._part(part))])

    def mean_losses(self, part: PartName, clients: Tensor, models: Tensor) -> Tensor:
        """Mean losses of models of shape (models, 1, P), float64 of shape (models, 1)."""
        sums = torch.zeros(len(models), 1, dtype=torch.float64)
        examples = 0
        for drawn, own in enumerate(self._part(part)):
            batch, count = LoneBatch.of(own, drawn, ONE), examples_in(own)
            losses = [self.own_network.mean_loss(model[0], batch) for model in models]
            sums += count * torch.tensor(losses, dtype=torch.float64)[:, None]
            examples += count
        return torch.nan_to_num(sums / max(examples, 1), nan=torch.inf, posinf=torch.inf)

    def steps(self, clients: Tensor) -> Tensor:
        """One step per mini-batch of the round, int64 of shape (1,).

        Raises:
            DataError: if there are none.
        """
        batches = self.batches()
        count = len(batches) if isinstance(batches, Sized) else sum(1 for _ in batches)
        if not count:
            raise DataError("there is no mini-batch to train the personal model on; look at the function `batches`")
        return torch.tensor([count])

    def post_hoc_steps(self, epochs: int, clients: Tensor) -> Tensor:
        """As many walks through the mini-batches."""
        return epochs * self.steps(clients)

    def stacked(
        self, clients: Tensor, received: Tensor, *, drawn: Tensor, steps: Tensor, start: Tensor | None = None
    ) -> LoneStack:
        """The client, from a model on."""
        return LoneStack(self, clients, received, drawn=drawn, steps=steps, start=start)

    def _part(self, part: PartName) -> Iterable[Any]:
        return self.batches() if part == "train" else self.held_out()


class LoneStack(StackedClients):
    """One client of a round; arguments as of `StackedClients`."""

    training: LoneTraining

    def batches(self, counts: Tensor | None = None) -> Iterator[ClientBatch]:
        """The owner's mini-batches, as many as there are steps, from the first on."""
        first = int(self.drawn)
        wanted = int(self.steps if counts is None else counts)
        for place, own in enumerate(islice(_endless(self.training.batches), wanted)):
            yield LoneBatch.of(own, first + place, self.clients)

    def draw_anew(self, steps: int) -> Iterator[ClientBatch]:
        """The same, for another number of steps."""
        return self.batches(torch.tensor([steps]))

    def gradient(self, models: Tensor, batch: ClientBatch, role: str = _SHARED) -> Tensor:
        """Gradient of the owner's loss, shape (1, P); what it drops is drawn from torch's own generator."""
        return self.network.gradient(models, batch)

    def sgd_step(
        self,
        models: Tensor,
        batch: ClientBatch,
        rate: float,
        proximal: ProximalTerm | None = None,
        *,
        role: str = _SHARED,
        adam: Adam | None = None,
    ) -> None:
        """One step in place, by the optimizer of the model in that role."""
        direction = self.network.with_proximal(self.gradient(models, batch, role), models, proximal)
        self.descend(models, direction, rate, _SHARED if role == _SHARED else "")

    def descend(self, models: Tensor, direction: Tensor, rate: float, model: Hashable = "") -> None:
        """One step by the model's optimizer; a rate other than the usual one scales the direction."""
        if self.training.descents.recipe is None:
            super().descend(models, direction, rate)
        else:
            self.training.descents.of(model).step(models[0], self._scaled(direction, rate)[0])

    def attempt(self, models: Tensor, direction: Tensor, rate: float, attempt: Hashable) -> Tensor:
        """The model after a step that may not be taken."""
        if self.training.descents.recipe is None:
            return super().attempt(models, direction, rate, attempt)
        tried = models.clone()
        self.training.descents.attempt(attempt).step(tried[0], self._scaled(direction, rate)[0])
        return tried

    def keep(self, attempts: Sequence[Hashable]) -> None:
        """Remember what belongs to the step that was taken."""
        self.training.descents.keep(attempts[0])

    def _scaled(self, direction: Tensor, rate: float) -> Tensor:
        return direction if rate == self.personal_rate else direction * (rate / self.personal_rate)


def no_examples() -> Clients:
    """The data of a client whose examples nobody but its owner's own functions sees."""
    empty = ClientPart(torch.empty(0, 1), torch.empty(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
    return Clients(empty, empty, empty, classes=2)


def _endless(batches: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    while True:
        empty = True
        for batch in batches():
            empty = False
            yield batch
        if empty:
            raise ConfigError("the function `batches` gave no mini-batch when it was asked again; return a new list")
