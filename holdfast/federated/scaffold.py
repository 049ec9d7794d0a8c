"""SCAFFOLD: local steps that are corrected by how a client's gradient differs from everybody's.

Clients with different data drift apart in their local steps, each towards its own optimum. Every client keeps a control
variate c_i, an estimate of its own gradient, and the server keeps c, that of all clients. A local step is
``y <- y - eta (g_i(y) - c_i + c)``, and after K of them the client has, by option II of the paper's algorithm 1,
``c_i+ = c_i - c + (x - y) / (K eta)``. It sends y - x and c_i+ - c_i; with a cohort S of N clients the server does
``x <- x + eta_g mean(y - x)`` and ``c <- c + |S| / N mean(c_i+ - c_i)``
(Karimireddy et al., 2020, https://arxiv.org/abs/1910.06378). With control variates of zero it is FedAvg.

Use it where clients' data differ and many of them come back: the control variate of a client that is drawn once helps
nobody. Messages are twice as long. What clients add to c stays there, so errors add up over the rounds: rules that see
one round's vectors promise nothing about the sum, and are refused. Norm clipping, whose bound holds in every round, may
come before the mean and then clips both vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Aggregator, RoundFacts
from holdfast.federated.engine.second_vector import SecondVector
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.objectives import FederatedObjective, State, kept_as, memory_of

#: The server's control variate, how many clients there are, and what the rule remembers of the clients' variates.
_CONTROL, _CLIENTS, _SECOND = "control", "clients", "second/"


@dataclass(frozen=True)
class Scaffold(FederatedObjective, SecondVector):
    """SCAFFOLD, option II: FedAvg whose local steps are corrected by control variates.

    Attributes:
        server_learning_rate: the paper's eta_g, what the mean update is multiplied by.
    """

    name: ClassVar[str] = "scaffold"

    server_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.server_learning_rate < float("inf"):
            raise ConfigError(
                f"scaffold's server_learning_rate is {self.server_learning_rate:g}; give a positive number, such as 1"
            )

    @property
    def second(self) -> SecondVector:
        """Clients send a change of their control variate, and receive the server's."""
        return self

    def check(self, aggregator: Aggregator) -> None:
        """Refuse rules other than means: errors in c add up, whatever a rule promises about one round."""
        if not aggregator.averages:
            raise ConfigError(
                f"scaffold adds up what clients say of their gradients over all rounds, and {aggregator.label} "
                "promises nothing about that sum; use mean or clipping"
            )

    # ---------------------------------------------------------------------------------------------- clients

    def correction(self, kept: Tensor, received: Tensor, stack: StackedClients) -> Tensor:
        """C - c_i."""
        return received - kept

    def after(self, kept: Tensor, received: Tensor, local: Tensor, stack: StackedClients) -> tuple[Tensor, Tensor]:
        """c_i+ by option II, and c_i+ - c_i.

        Running statistics have no gradient, so their control variate stays zero. A client whose model is no longer
        finite keeps the one it had: its update is dropped, and it is heard again once the model is finite.
        """
        drift = (stack.received - local) / (stack.steps[:, None].to(local) * stack.learning_rate)
        change = drift - received
        change[:, stack.network.trainable :] = 0
        finite = change.isfinite().all(dim=1, keepdim=True)
        return torch.where(finite, kept + change, kept), change

    # ---------------------------------------------------------------------------------------------- the server

    def begin(self, clients: int, parameters: int) -> State:
        """A control variate of zero; sums over all rounds are kept with 64 bits."""
        return {_CONTROL: torch.zeros(parameters, dtype=torch.float64), _CLIENTS: torch.tensor(clients)}

    def begin_with(self, aggregator: Aggregator, clients: int, parameters: int) -> State:
        """As ever, and what the rule remembers of control variates, apart from what it remembers of updates."""
        of_variates = {_SECOND + name: value for name, value in aggregator.begin(clients, parameters).items()}
        return {**super().begin_with(aggregator, clients, parameters), **of_variates}

    def beside(self, state: State) -> Tensor:
        """c, which clients receive with the model."""
        return state[_CONTROL]

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
        """The step of the model, and c after this round; `updates` has both vectors, shape (m, 2 P)."""
        facts, size = RoundFacts(f, losses, cohort, seed, number), updates.shape[1] // 2
        step, memory = aggregator.step(updates[:, :size], facts, memory_of(state))
        of_variates = {name.removeprefix(_SECOND): value for name, value in state.items() if name.startswith(_SECOND)}
        change, of_variates = aggregator.step(updates[:, size:], facts, of_variates)
        control = state[_CONTROL] + len(updates) / int(state[_CLIENTS]) * change.double()
        kept = {_SECOND + name: value for name, value in of_variates.items()}
        return self.server_learning_rate * step, {**state, **kept_as(memory), **kept, _CONTROL: control}
