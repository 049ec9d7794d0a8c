"""A Flower strategy with holdfast's aggregators and objectives, for a Flower project that keeps its ClientApp.

::

    strategy = RobustStrategy("multi-krum", f=2)
    strategy.start(grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=50)

What clients send is compared with what they were sent: rules see updates, not weights, whose distances lose their
digits late in training. Replies are put in the order of the clients' own ids before anything is added up, so two runs
agree to the bit. A reply that is not what it must be is left out, counted and logged, and never stops a round.

Ditto's shared model is that of the method underneath, so this is its server; the personal half is
`holdfast.integrations.flower.mod`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.federated.aggregation import Aggregator, Memory, RoundFacts, build_aggregator, weighted_sum
from holdfast.federated.objectives import OBJECTIVES, FedAvg, FederatedObjective, QFair, State, kept_as, memory_of
from holdfast.federated.server.optimizers import SERVER_OPTIMIZERS, Moments, ServerOptimizer
from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.replies import (
    SECOND_VECTOR,
    Reply,
    SentModel,
    alike,
    only,
    read_loss,
    read_metrics,
)
from holdfast.integrations.flower.messages.wire import sentence, unreadable
from holdfast.integrations.flower.secure import SecureGrid, check_secure

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
except ImportError as error:
    raise MissingDependencyError(
        "RobustStrategy needs Flower, which is not installed; pip install 'holdfast[flower]'"
    ) from error

_log = logging.getLogger(__name__)

#: Name of the metric that says how many replies of a round were left out.
DROPPED = "dropped-replies"


@dataclass(frozen=True)
class DroppedReply:
    """A reply that was left out.

    Attributes:
        round: counted from 1.
        node: Flower's id of the node.
        reason: a sentence.
    """

    round: int
    node: int
    reason: str


class RobustStrategy(FlowerFedAvg):
    """Any aggregator and any objective of holdfast behind Flower's strategy interface.

    The local work is the ClientApp's own. Replies have one ArrayRecord with the names that were sent and one
    MetricRecord. Integer arrays, such as batch counters, stay as the server has them.

    With `fraction_train` below one Flower draws nodes at random, by ids that are random too: what is drawn differs from
    run to run.

    Args:
        aggregator: a rule of `holdfast.federated`, or its name, such as ``"clipping+multi-krum"``.
        objective: an objective of `holdfast.federated`, or its name. FedProx sends its ``proximal-mu`` to clients, as
            Flower's own does.
        server_optimizer: moves the model by what was combined, such as ``"fedadam"``; by default it is added.
        f: how many of a round's replies to expect to be malicious. A reply that is left out counts as one of them.
            Rules that must know it are refused without; 0 is an answer. Where nodes are drawn at random,
            `holdfast.federated.expectation.hypergeometric_quantile` says what follows from a share of malicious nodes.
        weighted: weigh clients by the number of examples they claim, as Flower's own FedAvg does. Only for rules that
            average: a claim is cheap.
        learning_rate: of the clients' steps, which q-FFL needs to know.
        clients: how many the federation has, which SCAFFOLD needs to know; its ClientApps have
            `holdfast.integrations.flower.second_vector.SecondVectorMod`.
        client_key: the metric that holds a client's own id, the same in every run (its ``partition-id``); replies are
            ordered by it. Those without come last, by Flower's node id, which is random. It is not averaged.
        loss_key: the metric that holds a client's training loss at the model it received, where the objective or the
            rule needs it.
        most_examples: a client that claims more is left out.
        options: of Flower's own FedAvg: ``fraction_train``, ``min_train_nodes``, ``weighted_by_key``...

    Attributes:
        dropped: every reply that was left out so far.
        memory: what the rule remembers between rounds; save it with the model to go on after a restart.
        moments: what the server optimizer remembers between rounds; likewise.
        second: what an objective with a second vector remembers between rounds, SCAFFOLD's control variate; likewise.

    Raises:
        ConfigError: if objective and rule don't go together, or something they need is missing.
    """

    #: Whether the model moves in a round that nobody answers in.
    moves_alone: ClassVar[bool] = False

    def __init__(
        self,
        aggregator: Aggregator | str = "mean",
        objective: FederatedObjective | str | None = None,
        *,
        server_optimizer: ServerOptimizer | str | None = None,
        f: int | None = None,
        weighted: bool = False,
        learning_rate: float | None = None,
        clients: int | None = None,
        client_key: str = "partition-id",
        loss_key: str = "loss",
        most_examples: int = 10**9,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.aggregator = build_aggregator(aggregator) if isinstance(aggregator, str) else aggregator
        self.objective = OBJECTIVES.find(objective)() if isinstance(objective, str) else objective or FedAvg()
        self.f, self.weighted, self.learning_rate, self.clients = f or 0, weighted, learning_rate, clients
        self.client_key, self.loss_key, self.most_examples = client_key, loss_key, most_examples
        self.dropped: list[DroppedReply] = []
        if isinstance(server_optimizer, str):
            server_optimizer = SERVER_OPTIMIZERS.find(server_optimizer)()
        self.server_optimizer, self.moments = server_optimizer, cast("Moments | None", None)
        self.memory: Memory = {}
        self.second: State = {}
        self._sent: SentModel | None = None
        self._asked: set[int] = set()
        self._warned: set[str] = set()
        self._check(f)

    # ---------------------------------------------------------------------------------------------- a round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to the clients of a round; the model they carry is what replies are compared with."""
        if isinstance(grid, SecureGrid):
            check_secure(self.aggregator, self.objective)
        if self.objective.proximal:
            config["proximal-mu"] = self.objective.proximal
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self._sent = SentModel({name: array.numpy() for name, array in arrays.items()})
        self._asked = {message.metadata.dst_node_id for message in messages}
        if self.objective.second is not None:
            if len(messages) > (self.clients or 0):
                raise ConfigError(
                    f"a round has {len(messages)} clients and clients is {self.clients}; give all there are"
                )
            beside = self._beside(self._sent)
            for message in messages:
                message.content[SECOND_VECTOR] = beside
        if messages:
            self._warn(self.aggregator.check(len(messages), self.f))
            self._refuse_too_many(len(messages), self.f)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after the round, and the metrics of those whose replies were used."""
        sent = self._sent
        if sent is None:
            raise ConfigError("aggregate_train comes after configure_train, which knows what clients were sent")
        before = len(self.dropped)

        def read(message: Message) -> tuple[Reply, Tensor, float]:
            reply = self._numbers(message)
            update = self._update(sent, dict(message.content.array_records))
            return reply, update, read_loss(reply.metrics, self.loss_key) if self.needs_losses else 0.0

        readable = sorted(self._readable(server_round, replies, self._asked, read), key=lambda one: one[0].place)
        malformed = len(self.dropped) - before
        after = self._combine(server_round, sent, readable, malformed) if readable or self.moves_alone else None
        values = sent.arrays if after is None else after
        replies_read = [reply for reply, _, _ in readable]
        metrics = self._average(replies_read, self.train_metrics_aggr_fn) or MetricRecord()
        metrics[DROPPED] = malformed
        return ArrayRecord({name: Array(array) for name, array in values.items()}), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The metrics, averaged; a client that reports others than most is left out of them."""
        readable = sorted(self._readable(server_round, replies, None, self._numbers), key=lambda reply: reply.place)
        return self._average(readable, self.evaluate_metrics_aggr_fn)

    # ---------------------------------------------------------------------------------------------- inside

    @property
    def needs_losses(self) -> bool:
        """Whether clients must report their training loss at the model they received."""
        return self.objective.needs_losses or self.aggregator.needs_losses

    def _check(self, f: int | None) -> None:
        self.objective.check(self.aggregator)
        if f is None and self.aggregator.needs_f:
            raise ConfigError(
                f"{self.aggregator.label} must know how many malicious replies to expect in a round, and none was "
                "given; give f, such as f=2, or f=0 if nobody is expected to be malicious"
            )
        if self.aggregator.needs_clients:
            raise ConfigError(
                f"{self.aggregator.label} remembers something of every client, and a strategy does not know who is "
                "who; run it by `holdfast federate --engine flower`"
            )
        if self.objective.full_gradient:
            raise ConfigError(
                f"{self.objective.name} needs the full gradient of every client in every round, which a strategy can't "
                "make a ClientApp compute; run it by `holdfast federate`"
            )
        if self.objective.second is not None and (self.clients or 0) < 1:
            raise ConfigError(
                f"{self.objective.name} must know how many clients the federation has, and a strategy sees those of a "
                "round; give clients, such as clients=20, and the ClientApps SecondVectorMod"
            )
        if isinstance(self.objective, QFair) and self.learning_rate is None:
            raise ConfigError("q-ffl needs the learning rate of the clients' steps; give learning_rate")
        weighs = self.objective.weighs or self.objective.second is not None
        if self.weighted and (weighs or not self.aggregator.averages):
            what = self.objective.name if weighs else self.aggregator.label
            raise ConfigError(f"{what} has weights of its own, so clients can't be weighed by their examples; use mean")
        if self.f < 0:
            raise ConfigError(f"f is {self.f}; give 0 or more")

    def _refuse_too_many(self, replies: int, f: int) -> None:
        """Refuse to combine where the rule promises nothing against so many malicious replies."""
        stands = self.aggregator.stands(replies)
        if stands is not None and f > stands:
            raise ConfigError(
                f"{self.aggregator.label} withstands {stands} malicious replies among {replies}, and {f} are expected; "
                "take more nodes into a round, expect fewer, or use a rule that withstands more"
            )

    def _numbers(self, message: Message) -> Reply:
        metrics = only(message.content.metric_records, "metric")
        node = message.metadata.src_node_id
        return read_metrics(node, metrics, self.weighted_by_key, self.client_key, self.most_examples)

    def _readable(
        self, server_round: int, replies: Iterable[Message], expected: set[int] | None, read: Callable[[Message], Any]
    ) -> list[Any]:
        """What `read` makes of the replies of expected nodes, one per node; the others are noted in `dropped`."""
        readable: dict[int, Any] = {}
        for message in replies:
            node = message.metadata.src_node_id
            if message.has_error():
                _log.warning("round %d: node %d failed: %s", server_round, node, sentence(message.error.reason))
                continue
            try:
                if expected is not None and node not in expected:
                    raise RejectedError("it was not asked")
                if node in readable:
                    raise RejectedError("it has replied before")
                readable[node] = read(message)
            except Exception as error:  # anything can be in a reply, and a reply is less than a round
                reason = unreadable(error)
                self.dropped.append(DroppedReply(server_round, node, reason))
                _log.warning("round %d: the reply of node %d was left out: %s", server_round, node, reason)
        return list(readable.values())

    def _combine(
        self, server_round: int, sent: SentModel, readable: Sequence[tuple[Reply, Tensor, float]], malformed: int
    ) -> dict[str, Any] | None:
        """The arrays after the server's step; None, and a line in the log, where they must stay as they were."""
        updates = torch.stack([update for _, update, _ in readable])
        losses = torch.tensor([loss for _, _, loss in readable], dtype=torch.float64)
        f, second = max(self.f - malformed, 0), self.second
        try:
            self._warn(self.aggregator.check(len(readable), f))
            self._refuse_too_many(len(readable), f)
        except ConfigError as error:
            _log.warning("round %d: the model is kept as it was: %s", server_round, error)
            return None
        if self.weighted:
            examples = torch.tensor([reply.examples for reply, _, _ in readable], dtype=torch.float64)
            ready, self.memory = self.aggregator.transform(updates, RoundFacts(f), self.memory)
            step = weighted_sum(ready, examples / examples.sum())
        else:
            step, state = self.objective.combine(
                updates,
                losses,
                cohort=torch.arange(len(readable)),
                aggregator=self.aggregator,
                f=f,
                state={**kept_as(self.memory), **second},
                learning_rate=self.learning_rate or 1.0,
                number=server_round - 1,
            )
            self.memory = memory_of(state)
            second = {name: state[name] for name in second}
        return self._moved(server_round, sent, step, second)

    def _moved(self, server_round: int, sent: SentModel, step: Tensor, second: State) -> dict[str, Any] | None:
        """The arrays after a step, by the optimizer where there is one; None where they must stay as they were."""
        moments = self.moments
        if self.server_optimizer is not None:
            parameters = sent.parameters()
            begun = self.server_optimizer.begin(int(parameters.sum())) if moments is None else moments
            step, moments = self.server_optimizer.step(step, begun, parameters)
        after = sent.plus(step)
        if after is None:
            _log.warning("round %d: the model would no longer be finite; it is kept as it was", server_round)
        else:
            self.moments, self.second = moments, second
        return after

    def _beside(self, sent: SentModel) -> ArrayRecord:
        """The second vector that clients receive, under the names of the model's floating arrays."""
        if not self.second:
            begun = self.objective.begin_with(self.aggregator, self.clients or 0, len(sent.vector))
            of_rule = kept_as(memory_of(begun))
            self.second = {name: value for name, value in begun.items() if name not in of_rule}
        arrays = sent.zeros().plus(self.objective.beside(self.second).to(sent.vector))
        return ArrayRecord({name: Array(array) for name, array in (arrays or {}).items()})

    def _update(self, sent: SentModel, records: dict[str, ArrayRecord]) -> Tensor:
        """What a client has added to the model, and its second vector behind it where the objective has one."""
        second = None if self.objective.second is None else records.pop(SECOND_VECTOR, None)
        update = sent.update(only(records, "array"))
        if self.objective.second is None:
            return update
        if second is None:
            raise RejectedError("it has no second vector; the ClientApp needs SecondVectorMod")
        return torch.cat([update, sent.zeros().update(second)])

    def _average(
        self, replies: Sequence[Reply], function: Callable[[list[RecordDict], str], MetricRecord]
    ) -> MetricRecord | None:
        usual = alike(replies)
        if not usual:
            return None
        if len(usual) < len(replies):
            _log.warning("%d replies have other metrics than most; they aren't averaged", len(replies) - len(usual))
        records = [{name: value for name, value in reply.metrics.items() if name != self.client_key} for reply in usual]
        return function([RecordDict({"metrics": MetricRecord(one)}) for one in records], self.weighted_by_key)

    def _warn(self, sentences: Iterable[str]) -> None:
        for each in sentences:
            if each not in self._warned:
                self._warned.add(each)
                _log.warning(each)
