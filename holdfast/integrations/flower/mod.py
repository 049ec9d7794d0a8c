"""Ditto in somebody's own ClientApp: a mod that trains a personal model beside the shared one and keeps it at home.

::

    ditto = DittoMod(model=Net, loss=loss, batches=batches, learning_rate=0.1, lambda_=0.5, folder=Path("personal"))
    app = ClientApp(mods=[ditto])

The app trains the shared model as before; its reply is not touched. Then the personal model v takes steps
``v <- v - eta (gradient + lambda (v - w))`` towards the model w that was received (Ditto, Algorithm 1). It lives in a
file on the client's disk, because Flower keeps `Context.state` in memory and loses it with the node, and it is never
sent. Only numbers that your `scores` makes of it are, where you give one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from holdfast.errors import CheckpointError, ConfigError, DataError, MissingDependencyError
from holdfast.federated.personalization.ditto.proximal import refuse_negative, refuse_overshoot
from holdfast.files import write_atomically
from holdfast.training.state import load_state, save_state

try:
    from flwr.app import Context, Message, MessageType, MetricRecord
except ImportError as error:
    raise MissingDependencyError(
        "DittoMod needs Flower, which is not installed; pip install 'holdfast[flower]'"
    ) from error

_log = logging.getLogger(__name__)

#: What stands before the names of the personal model's scores in a reply.
PREFIX = "personal-"


@dataclass(frozen=True)
class DittoMod:
    """A client mod that adds a personal model.

    Attributes:
        model: makes the network, with any weights.
        loss: of a network on a batch, a scalar tensor.
        batches: the mini-batches of a round, from the message and the context that your train function gets too; each
            is a step of the personal model. Shuffle by ``message.content["config"]["server-round"]`` to be repeatable.
        learning_rate: of the personal model's steps.
        lambda_: strength of the proximal term towards the received model: 0 is training alone.
        folder: on the client's disk; made where missing.
        scores: what to tell of the personal model in answer to an evaluate message, such as its accuracy; nothing
            without. The names get ``personal-`` in front.
        client_key: the entry of the node's configuration that names the client. It must be the same after a restart,
            which Flower's node ids are not.

    Raises:
        ConfigError: if lambda is negative, or so large that steps overshoot.
    """

    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Any], Tensor]
    batches: Callable[[Message, Context], Iterable[Any]]
    learning_rate: float
    lambda_: float
    folder: Path
    scores: Callable[[nn.Module, Message, Context], Mapping[str, float]] | None = None
    client_key: str = "partition-id"

    def __post_init__(self) -> None:
        refuse_negative(self.lambda_)
        refuse_overshoot(self.lambda_, self.learning_rate)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Let the app answer, then train the personal model or add its scores."""
        kind = message.metadata.message_type
        if kind not in (MessageType.TRAIN, MessageType.EVALUATE) or len(message.content.array_records) != 1:
            return call_next(message, context)
        received = next(iter(message.content.array_records.values())).to_torch_state_dict()
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        with torch.random.fork_rng():
            if kind == MessageType.TRAIN:
                self._train(received, message, context)
            elif self.scores is not None:
                personal = self._model(self._stored(context) or {"model": received})
                metrics = next(iter(reply.content.metric_records.values()), None)
                if metrics is None:
                    metrics = reply.content["metrics"] = MetricRecord()
                for name, value in self.scores(personal.eval(), message, context).items():
                    metrics[PREFIX + name] = value
        return reply

    # ---------------------------------------------------------------------------------------------- inside

    def _train(self, received: dict[str, Tensor], message: Message, context: Context) -> None:
        """The steps of a round; a message that comes twice, for want of an answer, is one round."""
        stored = self._stored(context)
        now = [context.run_id, _round_of(message)]
        if stored is not None and now[1] is not None and stored["seen"] == now:
            return
        personal = self._model(stored or {"model": received}).train()
        anchors = [received[name] for name, _ in personal.named_parameters()]
        for batch in self.batches(message, context):
            sgd_step(personal, self.loss(personal, batch), anchors, self.lambda_, self.learning_rate)
        state = {name: value.detach().cpu() for name, value in personal.state_dict().items()}
        if not all(bool(value.isfinite().all()) for value in state.values()):
            _log.warning("the personal model is no longer finite after round %s; it is kept as it was", now[1])
            return
        rounds = 1 + (stored["rounds"] if stored is not None else 0)
        self.folder.mkdir(parents=True, exist_ok=True)
        save_state({"model": state, "lambda": self.lambda_, "rounds": rounds, "seen": now}, self._file(context))

    def _model(self, stored: Mapping[str, Any]) -> nn.Module:
        model = self.model()
        try:
            model.load_state_dict(stored["model"])
        except RuntimeError as error:
            raise ConfigError(
                f"the weights don't fit {type(model).__name__} ({str(error).splitlines()[-1].strip()}); "
                "give DittoMod the network that the server sends, and a folder of its own"
            ) from error
        return model

    def _stored(self, context: Context) -> dict[str, Any] | None:
        file = self._file(context)
        return load_state(file) if file.exists() else None

    def _file(self, context: Context) -> Path:
        if self.client_key not in context.node_config:
            raise ConfigError(
                f"the node's configuration has no {self.client_key!r}, so the personal model has no name; start the "
                f"SuperNode with --node-config '{self.client_key}=0', or give client_key"
            )
        return personal_file(self.folder, context.node_config[self.client_key])


def sgd_step(model: nn.Module, loss: Tensor, anchors: Iterable[Tensor], lambda_: float, rate: float) -> None:
    """One step of Ditto, in place: ``v <- v - rate (gradient + lambda (v - anchor))``.

    At lambda 0 anchors are not looked at, so they may be infinite.

    Args:
        model: v.
        loss: of the model on a batch.
        anchors: the received parameters, in the order of the model's.
        lambda_: strength of the proximal term.
        rate: the learning rate.
    """
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    with torch.no_grad():
        for parameter, gradient, anchor in zip(parameters, gradients, anchors, strict=True):
            direction = torch.zeros_like(parameter) if gradient is None else gradient
            if lambda_:
                direction = direction + lambda_ * (parameter - anchor.to(parameter.device))
            parameter.sub_(direction, alpha=rate)


def personal_file(folder: Path, client: object) -> Path:
    """Where the mod keeps a client's personal model.

    Raises:
        ConfigError: if the client's name is none for a file.
    """
    name = str(client)
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(f"the client is named {name!r}, which can't be a file's name; use letters, digits, _ and -")
    return folder / f"{name}.safetensors"


def export_personal(folder: Path, client: object, file: Path) -> None:
    """Write a client's personal model as a plain safetensors file, to be loaded by `safetensors.torch.load_file`.

    Args:
        folder: of the mod.
        client: the client's name, its ``partition-id``.
        file: what to write.

    Raises:
        DataError: if the client has no personal model there.
        CheckpointError: if it can't be read, or the file can't be written.
    """
    source = personal_file(folder, client)
    if not source.exists():
        raise DataError(f"{folder} has no personal model of client {client}; it has not trained there yet")
    stored = load_state(source)
    if "model" not in stored:
        raise CheckpointError(f"{source} is no personal model; give the folder of a DittoMod")
    write_atomically(file, save(stored["model"]))


def _round_of(message: Message) -> int | None:
    for record in message.content.config_records.values():
        number = record.get("server-round")
        if isinstance(number, int):
            return number
    return None
