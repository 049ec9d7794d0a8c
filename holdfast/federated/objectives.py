"""What a federation minimises, on the server's side: how updates and losses become a step (Ditto spec 2.4).

Clients send an update and, where asked, their training loss at the model they received. FedAvg, FedSGD and FedProx
leave the rest to the aggregator. TERM, q-FFL and AFL weigh clients themselves, so they go with the mean, or with a
pre-step such as clipping, and with no other rule.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import (
    Aggregator,
    Memory,
    RoundFacts,
    q_fair_weights,
    reported,
    tilted_weights,
    weighted_sum,
)
from holdfast.federated.engine.second_vector import SecondVector
from holdfast.lazy import LazyTable
from holdfast.primitives.projections import project_to_simplex

State = dict[str, Tensor]

#: What the aggregator remembers is kept in the state under names that begin so.
_AGGREGATOR = "aggregator/"


def memory_of(state: State) -> Memory:
    """The part of a server's state that its aggregator remembers."""
    return {name.removeprefix(_AGGREGATOR): value for name, value in state.items() if name.startswith(_AGGREGATOR)}


def kept_as(memory: Memory) -> State:
    """What an aggregator remembers, as a part of the server's state."""
    return {_AGGREGATOR + name: value for name, value in memory.items()}


@dataclass(frozen=True)
class FederatedObjective(ABC):
    """What a federation minimises. This class is FedAvg's behaviour; others change parts of it."""

    name: ClassVar[str]
    #: Whether clients must report their loss at the model they received.
    needs_losses: ClassVar[bool] = False
    #: Whether every client takes part in every round, with one step along the gradient on all its data.
    full_gradient: ClassVar[bool] = False
    #: Whether clients take one step per round.
    single_step: ClassVar[bool] = False
    #: Whether clients are weighed here, so that the aggregator must be a mean.
    weighs: ClassVar[bool] = False

    @property
    def proximal(self) -> float:
        """The weight mu of (mu / 2) |w - w_t|^2 in clients' local objectives."""
        return 0.0

    @property
    def second(self) -> SecondVector | None:
        """What clients do with a second vector beside the model, where there is one."""
        return None

    def check(self, aggregator: Aggregator) -> None:
        """Whether the two go together.

        Raises:
            ConfigError: if both want to weigh the clients.
        """
        if self.weighs and not aggregator.averages:
            raise ConfigError(
                f"{self.name} weighs clients by their losses and can't be combined with {aggregator.label}; "
                "use mean or clipping"
            )

    def begin(self, clients: int, parameters: int) -> State:
        """What is remembered between rounds, before the first.

        Args:
            clients: how many the federation has.
            parameters: how many the model has.
        """
        return {}

    def begin_with(self, aggregator: Aggregator, clients: int, parameters: int) -> State:
        """The same, with what the aggregator remembers."""
        return {**self.begin(clients, parameters), **kept_as(aggregator.begin(clients, parameters))}

    def beside(self, state: State) -> Tensor:
        """The vector that clients receive beside the model, shape (parameters,), where there is one."""
        raise NotImplementedError

    def combine(  # noqa: PLR0917 - all of what a round brings
        self,
        updates: Tensor,
        losses: Tensor,
        cohort: Tensor,
        aggregator: Aggregator,
        f: int,
        state: State,
        learning_rate: float,
        seed: int = 0,
        number: int = 0,
    ) -> tuple[Tensor, State]:
        """The server's step.

        Args:
            updates: what clients sent, shape (m, parameters); twice as wide where they send a second vector.
            losses: what they reported, shape (m,); only looked at where needed.
            cohort: their ids, int64 of shape (m,).
            aggregator: how updates are combined.
            f: expected number of attackers among them.
            state: what was remembered.
            learning_rate: of the clients' steps.
            seed: of the run, for rules that draw.
            number: of the round.

        Returns:
            What to add to the model, shape (parameters,), and what to remember.
        """
        facts, memory = RoundFacts(f, losses, cohort, seed, number), memory_of(state)
        if not self.weighs:
            step, memory = aggregator.step(updates, facts, memory)
            return step, {**state, **kept_as(memory)}
        prepared, memory = aggregator.transform(updates, facts, memory)
        weights = self.weights(prepared, reported(losses, len(updates)), cohort, state, learning_rate)
        step = weighted_sum(prepared, weights)
        return step, {**self.remember(step, losses, cohort, state), **kept_as(memory)}

    def weights(self, updates: Tensor, losses: Tensor, cohort: Tensor, state: State, learning_rate: float) -> Tensor:
        """The factor of each update in the step, float64 of shape (m,), where the objective weighs clients."""
        raise NotImplementedError

    def remember(self, step: Tensor, losses: Tensor, cohort: Tensor, state: State) -> State:
        """What is remembered after the step, where the objective weighs clients."""
        return state

    def output(self, weights: Tensor, state: State) -> Tensor:
        """The model to evaluate, given the current one; both of shape (parameters,)."""
        return weights


@dataclass(frozen=True)
class FedAvg(FederatedObjective):
    """The mean of clients' losses, by several local steps (McMahan et al., 2017)."""

    name: ClassVar[str] = "fedavg"


@dataclass(frozen=True)
class FedSGD(FederatedObjective):
    """The mean of clients' losses, by one local step per round."""

    name: ClassVar[str] = "fedsgd"
    single_step: ClassVar[bool] = True


@dataclass(frozen=True)
class FedProx(FederatedObjective):
    """FedAvg whose clients are pulled towards the model they received (Li et al., 2020).

    Attributes:
        mu: strength of the proximal term; 0 is FedAvg.
    """

    name: ClassVar[str] = "fedprox"

    mu: float = 0.01

    def __post_init__(self) -> None:
        _not_negative("fedprox", "mu", self.mu)

    @property
    def proximal(self) -> float:
        """Mu."""
        return self.mu


@dataclass(frozen=True)
class Term(FederatedObjective):
    """TERM: (1 / t) log mean exp(t x loss), which favours clients with a high loss (Li et al., 2021).

    Attributes:
        t: the tilt; 0 is FedAvg, large values leave the worst client only.
    """

    name: ClassVar[str] = "term"
    needs_losses: ClassVar[bool] = True
    weighs: ClassVar[bool] = True

    t: float = 1.0

    def __post_init__(self) -> None:
        _not_negative("term", "t", self.t)

    def weights(self, updates: Tensor, losses: Tensor, cohort: Tensor, state: State, learning_rate: float) -> Tensor:
        """Softmax of t x losses."""
        return tilted_weights(losses, self.t)


@dataclass(frozen=True)
class QFair(FederatedObjective):
    """q-FFL: the mean of loss^(q + 1) / (q + 1), by q-FedAvg (Li et al., 2020).

    Attributes:
        q: 0 is FedAvg; larger values favour clients with a high loss.
    """

    name: ClassVar[str] = "q-ffl"
    needs_losses: ClassVar[bool] = True
    weighs: ClassVar[bool] = True

    q: float = 1.0

    def __post_init__(self) -> None:
        _not_negative("q-ffl", "q", self.q)

    def weights(self, updates: Tensor, losses: Tensor, cohort: Tensor, state: State, learning_rate: float) -> Tensor:
        """Those of q-FedAvg, which sets the length of the step by an estimate of the curvature."""
        return q_fair_weights(updates, losses, self.q, learning_rate)


@dataclass(frozen=True)
class Afl(FederatedObjective):
    """AFL: the loss of the worst mixture of clients (Mohri et al., 2019), by gradient descent and ascent.

    The model that counts is the average of the models after each round. A client whose update was dropped has no part
    in the step, and its loss counts as zero.

    Attributes:
        gamma_w: step size of the model.
        gamma_p: step size of the mixture.
    """

    name: ClassVar[str] = "afl"
    needs_losses: ClassVar[bool] = True
    full_gradient: ClassVar[bool] = True
    single_step: ClassVar[bool] = True
    weighs: ClassVar[bool] = True

    gamma_w: float = 0.1
    gamma_p: float = 0.1

    def __post_init__(self) -> None:
        _not_negative("afl", "gamma_w", self.gamma_w)
        _not_negative("afl", "gamma_p", self.gamma_p)

    def begin(self, clients: int, parameters: int) -> State:
        """The uniform mixture; how far the average model is behind the current one; rounds so far."""
        return {
            "mixture": torch.full((clients,), 1 / clients, dtype=torch.float64),
            "lag": torch.zeros(parameters, dtype=torch.float64),
            "rounds": torch.zeros((), dtype=torch.int64),
        }

    def weights(self, updates: Tensor, losses: Tensor, cohort: Tensor, state: State, learning_rate: float) -> Tensor:
        """The mixture; an update over minus the learning rate is a gradient."""
        return state["mixture"][cohort] * (self.gamma_w / learning_rate)

    def remember(self, step: Tensor, losses: Tensor, cohort: Tensor, state: State) -> State:
        """The mixture after a step of ascent along the losses, and the lag of the average model."""
        risen, rounds = state["mixture"].clone(), state["rounds"]
        risen[cohort] += self.gamma_p * losses.double()
        lag = (state["lag"] - step.double()) * (rounds.double() / (rounds + 1))
        return {"mixture": project_to_simplex(risen), "lag": lag, "rounds": rounds + 1}

    def output(self, weights: Tensor, state: State) -> Tensor:
        """The average of the models after each round."""
        return (weights.double() + state["lag"]).to(weights.dtype)


OBJECTIVES: LazyTable[type[FederatedObjective]] = LazyTable(
    "objective",
    {
        **{objective.name: objective for objective in (FedAvg, FedSGD, FedProx, Term, QFair, Afl)},
        "scaffold": "holdfast.federated.scaffold:Scaffold",
    },
)


def _not_negative(name: str, option: str, value: float) -> None:
    if not value >= 0:
        raise ConfigError(f"{name}'s {option} is {value:g}; give a number that is not negative")
