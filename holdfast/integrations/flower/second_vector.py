"""SCAFFOLD in somebody's own ClientApp: a mod that trains with a second vector beside the model.

::

    app = ClientApp(mods=[SecondVectorMod(Scaffold(), Net, loss, batches, folder=Path("variates"), learning_rate=0.1)])
    strategy = RobustStrategy(objective=Scaffold(), clients=20)

The server sends two array records, the model and the second vector, and gets two back. The correction belongs into
every local step, so the mod trains in place of the app's train function, by plain gradient steps on the app's
mini-batches; evaluate messages go on to the app. What the client remembers, SCAFFOLD's c_i, is a file on its disk like
a personal model. A `PersonalMod` may stand before this one: personal models follow the shared one as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.federated.engine.second_vector import SecondVector
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.settings import Rounds
from holdfast.integrations.flower.messages.replies import SECOND_VECTOR
from holdfast.integrations.flower.personal.client import PersonalClient
from holdfast.integrations.flower.personal.lone_network import LoneNetwork, Loss, examples_in
from holdfast.integrations.flower.personal.memory import PersonalFolder, PersonalState

try:
    from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict

    from holdfast.integrations.flower.personal.messages import (
        client_of,
        kept,
        loaded,
        received_state,
        record_name,
        round_of,
        seen,
        undisturbed,
    )
except ImportError as error:
    raise MissingDependencyError(
        "SecondVectorMod needs Flower, which is not installed; pip install 'holdfast[flower]'"
    ) from error


@dataclass(frozen=True)
class SecondVectorMod:
    """A client mod that trains the shared model with a second vector.

    Attributes:
        objective: one with a second vector, such as ``Scaffold()``; the strategy has the same.
        model: makes the network, with any weights.
        loss: of a network on a batch, a scalar tensor.
        batches: the mini-batches of a round, from the message and the context; each is a step.
        folder: on the client's disk; made where missing, for its owner alone.
        learning_rate: of the steps.
        client: names the client, as for `holdfast.integrations.flower.mod.PersonalMod`.
        run: a name under which runs share what clients remember; by default each of Flower's runs has its own.
        arrays: which record of the message is the model, where there are several.

    Raises:
        ConfigError: if the objective has no second vector, or the step size is no positive number.
    """

    objective: FederatedObjective
    model: Callable[[], nn.Module]
    loss: Loss
    batches: Callable[[Message, Context], Iterable[Any]]
    folder: Path
    learning_rate: float
    client: str | Callable[[Message, Context], object] = "partition-id"
    run: str | None = None
    arrays: str | None = None

    def __post_init__(self) -> None:
        _ = self._second, self._settings

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Train in place of the app; everything else is the app's."""
        if message.metadata.message_type != MessageType.TRAIN or not message.content.array_records:
            return call_next(message, context)
        name = client_of(message, context, self.client)
        with undisturbed("second", str(name), round_of(message) or 0):
            return self._train(name, message, context)

    @property
    def _second(self) -> SecondVector:
        if self.objective.second is None:
            raise ConfigError(f"{self.objective.name} has no second vector, so it needs no mod; use Scaffold()")
        return self.objective.second

    @property
    def _settings(self) -> Rounds:
        return Rounds(rounds=1, cohort=1, learning_rate=self.learning_rate)

    def _train(self, name: object, message: Message, context: Context) -> Message:
        """A round; a message that comes twice, for want of an answer, is answered alike and remembered once."""
        record = record_name(message, self.arrays)
        received = received_state(message.content.array_records[record], self.model)
        network = LoneNetwork(loaded(self.model(), received), self.loss)
        names = dict(zip(message.content.array_records[record], received, strict=True))
        beside, known = _received_beside(message, names, network), seen(message, context)
        # Apart from personal models, whose mod may have been given the same folder.
        folder = PersonalFolder(
            self.folder / self.objective.name, f"run-{context.run_id}" if self.run is None else self.run
        )
        with folder.held(name):
            last = folder.load(name) or PersonalState(self.objective.name)
            repeated = known is not None and last.seen == known
            before = PersonalState(**last.before) if repeated else last
            client = PersonalClient(
                network, self._settings, None, kept(lambda: self.batches(message, context)), tuple, 1.0, before
            )
            shared = network.initial
            after, update, change = client.train_corrected(self._second, beside, self.objective.name)
            if not repeated:
                folder.save(name, replace(after, seen=known or [], before=before.to_repeat()))
            examples = sum(examples_in(batch) for batch in client.batches())
        rest, new = network.rest(), network.state_dict(shared + update)
        arrays = ArrayRecord({wire: (received if own in rest else new)[own] for wire, own in names.items()})
        metrics: dict[str, int | float | list[int] | list[float]] = {"num-examples": examples}
        if isinstance(self.client, str) and isinstance(name, int):
            metrics[self.client] = name
        second = _second_record(message, names, network, change)
        content = RecordDict({record: arrays, SECOND_VECTOR: second, "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)


def _received_beside(message: Message, names: Mapping[str, str], network: LoneNetwork) -> Tensor:
    """The second vector of a message as a row, shape (P,); `names` are the network's own by those of the record."""
    if SECOND_VECTOR not in message.content.array_records:
        raise ConfigError(
            "the message has no second vector; give the server RobustStrategy with the objective of SecondVectorMod"
        )
    record = message.content.array_records[SECOND_VECTOR]
    parts = {names.get(wire, wire): torch.from_numpy(np.array(array.numpy())) for wire, array in record.items()}
    return torch.cat([parts[name].flatten().to(network.dtype) for name in network.layout.names])


def _second_record(message: Message, names: Mapping[str, str], network: LoneNetwork, row: Tensor) -> ArrayRecord:
    """A row in the shapes of the second vector that came; zeros for what does not train."""
    parts = dict(zip(network.layout.names, network.layout.split(row), strict=True))
    arrays = {}
    for wire, array in message.content.array_records[SECOND_VECTOR].items():
        like = torch.from_numpy(np.array(array.numpy()))
        arrays[wire] = parts[names[wire]].to(like) if names[wire] in parts else torch.zeros_like(like)
    return ArrayRecord(arrays)
