"""What a mod reads out of somebody's messages, and what it owes their program: generators as they were."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.integrations.flower.messages.replies import SECOND_VECTOR
from holdfast.streams import derive_seed


def record_name(message: Message, wanted: str | None) -> str:
    """Which of a message's array records is the model; a second vector beside it is none.

    Raises:
        ConfigError: if there are several and it is not said which.
    """
    there = [name for name in message.content.array_records if name != SECOND_VECTOR]
    if wanted is None and len(there) == 1:
        return there[0]
    if wanted not in there:
        raise ConfigError(
            f"the message has the array records {', '.join(there)}; name the one with the model, as in "
            f"PersonalMod(..., arrays={there[0]!r})"
        )
    return wanted


def received_state(record: ArrayRecord, model: Callable[[], nn.Module]) -> dict[str, Tensor]:
    """The shared model under the network's own names; arrays without names are in the network's order."""
    arrays = {name: torch.from_numpy(np.array(array.numpy())) for name, array in record.items()}
    if list(arrays) != [str(place) for place in range(len(arrays))]:
        return arrays
    names = list(model().state_dict())
    return dict(zip(names, arrays.values(), strict=True)) if len(names) == len(arrays) else arrays


def loaded(model: nn.Module, received: Mapping[str, Tensor]) -> nn.Module:
    """The network with the received weights.

    Raises:
        ConfigError: if they are another network's.
    """
    try:
        model.load_state_dict(received)
    except RuntimeError as error:
        raise ConfigError(
            f"the weights don't fit {type(model).__name__} ({str(error).splitlines()[-1].strip()}); "
            "give PersonalMod the network that the server sends, and another run its own name"
        ) from error
    return model


def client_of(message: Message, context: Context, client: str | Callable[[Message, Context], object]) -> object:
    """The client's lasting name: an entry of the node's configuration, or what a function says.

    Raises:
        ConfigError: if the configuration has no such entry.
    """
    if not isinstance(client, str):
        return client(message, context)
    if client not in context.node_config:
        raise ConfigError(
            f"the node's configuration has no {client!r}, so the personal model has no name; start the "
            f"SuperNode with --node-config '{client}=0', or give client"
        )
    return context.node_config[client]


def round_of(message: Message) -> int | None:
    """The number of the round, where the server tells it."""
    for record in message.content.config_records.values():
        number = record.get("server-round")
        if isinstance(number, int):
            return number
    return None


def seen(message: Message, context: Context) -> list[Any] | None:
    """What a message is known again by, where the server numbers its rounds."""
    number = round_of(message)
    return None if number is None else [context.run_id, str(message.metadata.message_type), number]


def kept(batches: Callable[[], Iterable[Any]]) -> Callable[[], Iterable[Any]]:
    """The same mini-batches whenever they are asked for: a loader as it is, a list of what can be walked only once."""
    given: list[Iterable[Any]] = []

    def walk() -> Iterable[Any]:
        if not given:
            first = batches()
            given.append(first if hasattr(first, "__len__") else list(first))
        return given[0]

    return walk


@contextmanager
def undisturbed(*stream: str | int) -> Iterator[None]:
    """What happens inside draws from a stream of its own: it can be repeated, and the app goes on as if nothing was."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the app may use it
    seed = derive_seed(0, *stream) % 2**32
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
