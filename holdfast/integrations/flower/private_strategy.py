"""A Flower strategy whose shared model hides every client, for a Flower project that keeps its ClientApp.

::

    strategy = PrivateStrategy(ClientPrivacy(clip=0.3, epsilon=8), clients=500, cohort=100, rounds=30)
    strategy.start(grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=30)
    print(strategy.spent().sentence())

It is `holdfast.federated.server.privacy` behind Flower's strategy interface: each node is drawn by itself, as the
accountant assumes, updates are cut, the sum gets noise and is divided by the expected number of clients, and a round
that nobody is drawn in gets its noise too. Flower's own wrappers cut and blur likewise, and leave sampling and
accounting to the user. What clients report beside their updates, numbers of examples and metrics, has no noise: the
guarantee is for who sees the shared model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.federated.aggregation import Mean
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.server.optimizers import ServerOptimizer
from holdfast.federated.server.privacy import KEY, ClientPrivacy, PrivacySpent
from holdfast.federated.settings import Rounds
from holdfast.integrations.flower.messages.replies import Reply, SentModel
from holdfast.integrations.flower.strategies import RobustStrategy
from holdfast.streams import torch_stream

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.serverapp import Grid
except ImportError as error:
    raise MissingDependencyError(
        "PrivateStrategy needs Flower, which is not installed; pip install 'holdfast[flower]'"
    ) from error

_log = logging.getLogger(__name__)


class PrivateStrategy(RobustStrategy):
    """The mean of clipped updates with noise, and what it has spent.

    A node is a client: who speaks for several has them protected one by one, and not itself.

    Args:
        privacy: the clip, and noise or epsilon.
        clients: how many the federation has, which is taken to be public.
        cohort: how many are drawn in a round on average: each node with the chance cohort / clients.
        rounds: how many there will be, for a noise that follows from epsilon.
        objective: fedavg or fedprox.
        server_optimizer: comes after the noise and spends nothing.
        options: of `RobustStrategy`, such as ``client_key``, but for those that say who is drawn or counts for more.

    Attributes:
        key: of noise and sampling; whoever knows it can take the noise off. Save it, with `done`, to go on elsewhere.
        done: rounds so far.

    Raises:
        ConfigError: if the accountant's answer would not be true of what is given.
    """

    moves_alone: ClassVar[bool] = True

    def __init__(
        self,
        privacy: ClientPrivacy,
        *,
        clients: int,
        cohort: int,
        rounds: int,
        objective: FederatedObjective | str | None = None,
        server_optimizer: ServerOptimizer | str | None = None,
        **options: Any,
    ) -> None:
        taken = {"aggregator", "f", "weighted", "fraction_train", "min_train_nodes"} & options.keys()
        if taken:
            raise ConfigError(
                f"{min(taken)} isn't an option of a private strategy: clients are drawn one by one and all count alike"
            )
        super().__init__("mean", objective, server_optimizer=server_optimizer, clients=clients, **options)
        if not 1 <= cohort <= clients:
            raise ConfigError(f"cohort is {cohort} and there are {clients} clients; give 1 to {clients}")
        self.privacy = privacy
        self.settings = Rounds(rounds=rounds, cohort=cohort, sampling="poisson")
        privacy.check(self.settings, self.objective, Mean(), clients)
        self.key, self.done = privacy.begin()[KEY], 0

    def spent(self) -> PrivacySpent:
        """What the rounds so far have spent."""
        assert self.clients is not None
        return self.privacy.spent(self.settings, self.clients, self.done)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to those who are drawn."""
        sent = SentModel({name: array.numpy() for name, array in arrays.items()})
        if not bool(sent.parameters().all()):
            raise ConfigError(
                "privacy clips all that clients send and adds noise, which makes running statistics of batch "
                "normalisation useless; use a model with group normalisation"
            )
        generator = torch_stream(int(self.key), "selection", self.done)
        nodes = sorted(grid.get_node_ids())
        drawn = torch.rand(len(nodes), dtype=torch.float64, generator=generator) < self._rate
        chosen = [node for node, is_drawn in zip(nodes, drawn.tolist(), strict=True) if is_drawn]
        config["server-round"] = server_round
        if self.objective.proximal:
            config["proximal-mu"] = self.objective.proximal
        self._sent, self._asked = sent, set(chosen)
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return list(self._construct_messages(record, chosen, MessageType.TRAIN))

    @property
    def _rate(self) -> float:
        assert self.clients is not None
        return self.settings.cohort / self.clients

    def _combine(
        self, server_round: int, sent: SentModel, readable: Sequence[tuple[Reply, Tensor, float]], malformed: int
    ) -> dict[str, Any] | None:
        """The arrays after the clipped sum and its noise; the round counts whatever comes of it."""
        assert self.clients is not None
        size = len(sent.vector)
        updates = torch.stack([update for _, update, _ in readable]) if readable else sent.vector.new_empty(0, size)
        noise = self.privacy.noise(size, self.settings, self.clients, {KEY: self.key}, self.done)
        step = self.privacy.mean(updates.double(), self.settings.cohort) + noise
        self.done += 1
        if self.done > self.settings.rounds and self.privacy.epsilon is not None:
            _log.warning(
                "round %d: %d rounds were planned for an epsilon of %g; more is spent now",
                server_round, self.settings.rounds, self.privacy.epsilon,
            )  # fmt: skip
        return self._moved(server_round, sent, step.to(sent.vector), self.second)
