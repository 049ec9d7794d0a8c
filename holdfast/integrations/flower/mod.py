"""Personalization in somebody's own ClientApp: a mod that keeps a personal model beside the shared one, at home.

::

    personal = PersonalMod(Ditto(0.5), Net, loss, batches, folder=Path("personal"), learning_rate=0.1)
    app = ClientApp(mods=[personal])

The method is a class of `holdfast.federated.personalization`, the one that the simulator runs. Which kind it is says
what the mod does with a message:

- alongside (Ditto, APFL, training alone): the app trains the shared model as before and its reply is not touched; then
  the personal model takes a step per mini-batch;
- joint (L2SGD, pFedMe, mapper, Per-FedAvg, FedPer, FedRep, FedBN): the method trains in place of the app, and the reply
  is the mod's;
- post-hoc (fine-tuning, EWC, SKL): evaluate messages bring the shared model of the round, from which the personal
  model is trained anew.

Personal models live in files on the client's disk and are never sent. Only numbers that your `scores` makes of them
are, where you give one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.federated.personalization.base import (
    AlongsidePersonalizer,
    JointPersonalizer,
    Personalizer,
    PostHocPersonalizer,
)
from holdfast.federated.personalization.ditto.adaptive import AdaptiveDitto
from holdfast.federated.personalization.factory import resolve
from holdfast.federated.settings import Rounds
from holdfast.integrations.flower.personal.client import PersonalClient
from holdfast.integrations.flower.personal.descent import Recipe, check_optimizer
from holdfast.integrations.flower.personal.lone_network import LoneNetwork, Loss, examples_in
from holdfast.integrations.flower.personal.memory import PersonalFolder, PersonalState, export_personal

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
        "PersonalMod needs Flower, which is not installed; pip install 'holdfast[flower]'"
    ) from error

__all__ = ["PREFIX", "PersonalMod", "export_personal"]

_log = logging.getLogger(__name__)

#: What stands before the names of the personal model's scores in a reply.
PREFIX = "personal-"


@dataclass(frozen=True)
class PersonalMod:
    """A client mod that adds a personal model.

    Attributes:
        method: of `holdfast.federated.personalization`, such as ``Ditto(0.5)`` or ``Ditto("auto")``.
        model: makes the network, with any weights.
        loss: of a network on a batch, a scalar tensor.
        batches: the mini-batches of a round, from the message and the context that your train function gets too; each
            is a step of the personal model. Shuffle by ``message.content["config"]["server-round"]`` to be repeatable.
        folder: on the client's disk; made where missing, for its owner alone.
        learning_rate: of plain steps; that of the optimizer where there is one.
        optimizer: makes an optimizer of torch from the personal model, in place of plain steps. What it remembers is
            kept between rounds.
        scheduler: makes a schedule of its learning rate.
        schedule_by: what the schedule counts: rounds that the client takes part in, or steps.
        validation: mini-batches to choose by, like `batches`, for ``Ditto("auto")`` and ``Ditto("parallel")``.
        scores: what to tell of the personal model in answer to an evaluate message, such as its accuracy; nothing
            without. The names get ``personal-`` in front.
        client: names the client: an entry of the node's configuration, or a function of the message and the context.
            It must be the same after a restart, which Flower's node ids are not.
        run: a name under which runs share personal models: one continues where the last one ended. By default each of
            Flower's runs has its own.
        arrays: which record of the message is the model, where there are several.
        participation: share of the clients that take part in a round, which L2SGD must know.
        strong_attack: whether clients must be on their guard against the shared model: Ditto's candidates for lambda
            are smaller then.
        from_round: the first round whose evaluate message makes a post-hoc method train; of all by default. One that
            starts ``after`` some round trains in that one only.

    Raises:
        ConfigError: if the method can't work with what is given.
    """

    method: Personalizer
    model: Callable[[], nn.Module]
    loss: Loss
    batches: Callable[[Message, Context], Iterable[Any]]
    folder: Path
    learning_rate: float | None = None
    optimizer: Callable[[nn.Module], Optimizer] | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    schedule_by: Literal["round", "step"] = "round"
    validation: Callable[[Message, Context], Iterable[Any]] | None = None
    scores: Callable[[nn.Module, Message, Context], Mapping[str, float]] | None = None
    client: str | Callable[[Message, Context], object] = "partition-id"
    run: str | None = None
    arrays: str | None = None
    participation: float = 1.0
    strong_attack: bool = False
    from_round: int = 0

    def __post_init__(self) -> None:
        method = self.methods[0]
        if method.needs_examples:
            raise ConfigError(
                f"{method.label} looks at single examples of a client, and a mod sees the mini-batches of somebody "
                "else's loop; run it with `holdfast federate --engine flower`, or use finetuning, ewc or skl here"
            )
        if isinstance(method, AdaptiveDitto) and self.validation is None:
            raise ConfigError(
                f"{method.label} chooses lambda by the loss on validation data; give the mod `validation`, or Ditto a "
                "number"
            )
        if self.learning_rate is None and self.optimizer is None:
            raise ConfigError("the personal model needs steps; give a learning_rate, or an optimizer")
        if self.scheduler is not None and self.optimizer is None:
            raise ConfigError("a scheduler belongs to an optimizer; give one, such as torch.optim.SGD")
        if not 0 < self.participation <= 1:
            raise ConfigError(f"participation is {self.participation}; give a share of the clients, above 0 to 1")
        if self.optimizer is None:
            _ = self._settings

    @cached_property
    def methods(self) -> list[Personalizer]:
        """The method as it runs, and what follows on it when the rounds are over, where something does."""
        if not isinstance(self.method, Personalizer):
            raise ConfigError(
                f"the method is {self.method!r}; give one of holdfast.federated.personalization, such as Ditto(0.5)"
            )
        return resolve([self.method], self.strong_attack)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Let the app answer, or the joint method; train the personal model, or add its scores."""
        kind = message.metadata.message_type
        if kind not in (MessageType.TRAIN, MessageType.EVALUATE) or not message.content.array_records:
            return call_next(message, context)
        trains = kind == MessageType.TRAIN
        if trains and isinstance(self.methods[0], JointPersonalizer):
            with undisturbed(*self._stream(message, context)):
                return self._train_jointly(message, context)
        # Copied before the app has it: an app may change the record in place.
        record = record_name(message, self.arrays)
        received = received_state(message.content.array_records[record], self.model)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        with undisturbed(*self._stream(message, context)):
            if trains:
                self._train(received, message, context)
            else:
                self._evaluate(received, message, context, reply)
        return reply

    # ---------------------------------------------------------------------------------------------- messages

    def _train(self, received: dict[str, Tensor], message: Message, context: Context) -> None:
        """The steps of a round; a message that comes twice, for want of an answer, is one round."""
        method = self.methods[0]
        if not isinstance(method, AlongsidePersonalizer):
            return
        folder, name, known = self._folder(context), self._client(message, context), seen(message, context)
        with folder.held(name):
            before = folder.load(name) or PersonalState(method.label)
            if known is not None and before.seen == known:
                return
            client = self._personal(received, before, message, context)
            after, _ = client.train(method)
            self._keep(folder, name, replace(client, state=replace(after, seen=known or [])), method)

    def _train_jointly(self, message: Message, context: Context) -> Message:
        method, record = self.methods[0], record_name(message, self.arrays)
        assert isinstance(method, JointPersonalizer)
        received = received_state(message.content.array_records[record], self.model)
        folder, name, known = self._folder(context), self._client(message, context), seen(message, context)
        with folder.held(name):
            last = folder.load(name) or PersonalState(method.label)
            repeated = known is not None and last.seen == known
            before = PersonalState(**last.before) if repeated else last
            client = self._personal(received, before, message, context)
            shared = client.network.initial
            after, sent = client.train(method)
            if not repeated:
                after = replace(after, seen=known or [], before=before.to_repeat())
                self._keep(folder, name, replace(client, state=after), method)
            examples = sum(examples_in(batch) for batch in client.batches())
        assert sent is not None
        rest, new = client.network.rest(), client.network.state_dict(shared + sent)
        there = zip(message.content.array_records[record], received, strict=True)
        arrays = ArrayRecord({name: (received if key in rest else new)[key] for name, key in there})
        metrics: dict[str, int | float | list[int] | list[float]] = {"num-examples": examples}
        if isinstance(self.client, str) and isinstance(name, int):
            metrics[self.client] = name
        return Message(RecordDict({record: arrays, "metrics": MetricRecord(metrics)}), reply_to=message)

    def _evaluate(self, received: dict[str, Tensor], message: Message, context: Context, reply: Message) -> None:
        """Train what is trained when the rounds are over, and tell how the personal model fares."""
        *earlier, method = self.methods
        tunes = isinstance(method, PostHocPersonalizer) and self._is_due(method, round_of(message) or 0)
        # Some models are made of what is kept and of the shared model, which has moved since the client trained.
        moved = type(method).models is not Personalizer.models
        if not (tunes or moved or self.scores is not None):
            return
        folder, name = self._folder(context), self._client(message, context)
        with folder.held(name):
            state = folder.load(name) or PersonalState(method.label)
            client = self._personal(received, state, message, context)
            if tunes and isinstance(method, PostHocPersonalizer):
                followed = earlier[0] if earlier and method.follows == earlier[0].label else None
                client = replace(client, state=client.tune(method, followed))
            if tunes or (moved and method.label in client.state.rows):
                self._keep(folder, name, client, method)
            personal = client.network.module
            personal.load_state_dict(client.state_dict(method))
        if self.scores is not None:
            metrics = next(iter(reply.content.metric_records.values()), None)
            if metrics is None:
                metrics = reply.content["metrics"] = MetricRecord()
            for key, value in self.scores(personal.eval(), message, context).items():
                metrics[PREFIX + key] = value

    # ---------------------------------------------------------------------------------------------- inside

    def _is_due(self, method: PostHocPersonalizer, number: int) -> bool:
        """Whether a post-hoc method trains from the shared model of this round."""
        return number >= self.from_round if method.starts_after is None else number == method.starts_after

    @cached_property
    def _settings(self) -> Rounds:
        """The learning rate, that of the optimizer where none is given; pulls that overshoot are refused."""
        optimizer = None if self.optimizer is None else check_optimizer(self.optimizer(self.model()))
        rate = self.learning_rate
        if rate is None and optimizer is not None:
            rate = float(optimizer.param_groups[0]["lr"])
        # How many rounds there will be is the server's to know; a method may start after one of them.
        starts = [method.starts_after or 1 for method in self.methods if isinstance(method, PostHocPersonalizer)]
        settings = Rounds(rounds=max(starts, default=1), cohort=1, learning_rate=rate or 0.0)
        if optimizer is None or isinstance(optimizer, torch.optim.SGD):
            self.methods[0].check(settings)
        return settings

    @property
    def _recipe(self) -> Recipe | None:
        return None if self.optimizer is None else Recipe(self.optimizer, self.scheduler, self.schedule_by)

    def _personal(
        self, received: Mapping[str, Tensor], state: PersonalState, message: Message, context: Context
    ) -> PersonalClient:
        network = LoneNetwork(loaded(self.model(), received), self.loss)
        for method in self.methods:
            method.check_network(network)
        validation = self.validation
        return PersonalClient(
            network,
            self._settings,
            self._recipe,
            batches=kept(lambda: self.batches(message, context)),
            # Looked at in every step, so it is read once.
            held_out=kept(lambda: () if validation is None else list(validation(message, context))),
            share=self.participation,
            state=state,
        )

    def _keep(self, folder: PersonalFolder, name: object, client: PersonalClient, method: Personalizer) -> None:
        state = replace(client.state, method=method.label, model=client.state_dict(method))
        if not all(bool(value.isfinite().all()) for value in state.model.values()):
            _log.warning("the personal model of client %r is no longer finite; it is kept as it was", name)
            return
        folder.save(name, state)

    def _folder(self, context: Context) -> PersonalFolder:
        return PersonalFolder(self.folder, f"run-{context.run_id}" if self.run is None else self.run)

    def _stream(self, message: Message, context: Context) -> tuple[str | int, ...]:
        """Names of what is drawn for a message: one that comes twice draws the same, the next round something else."""
        return ("personal", str(self._client(message, context)), round_of(message) or 0)

    def _client(self, message: Message, context: Context) -> object:
        return client_of(message, context, self.client)
