"""What crosses the wire: arrays and short lists of plain values, and nothing is believed before it is checked.

A request goes to a node, with the clients it is for. A reply comes back. Arrays travel as NumPy files without pickles.
"""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from holdfast.integrations.flower.messages.arrays import RejectedError, read_array

Action = Literal["census", "ready", "train", "tune", "score"]

#: Version of this format; nodes and servers of another are refused.
FORMAT = 1
#: Names of the records of a message.
HEAD, ARRAYS = "holdfast", "arrays"
_ACTIONS: tuple[Action, ...] = get_args(Action)
_MOST_CLIENTS = 10**7
_FEDERATION_LENGTH = 32


@dataclass(frozen=True)
class Request:
    """What the server asks of a node.

    Attributes:
        action: say whom you have (``census``), say that you are through with what you were asked before (``ready``),
            train a round, tune personal models, or score models.
        federation: 32 hexadecimal digits; what nodes keep of different federations never mixes.
        number: of the round, from 0.
        total: clients in the federation.
        clients: ids, ascending, of those that the request is for. Of a census, those that the roster gives the node;
            none without a roster.
        labels: whose models to score, with an empty word for the shared one; or the method that tunes.
        part: which examples to score.
        weights: the shared model, shape (P,); of a round with a second vector behind it where the objective has one.
    """

    action: Action
    federation: str
    number: int = 0
    total: int = 0
    clients: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    part: str = ""
    weights: Tensor | None = None

    def pack(self) -> RecordDict:
        """The request as records.

        With a secret in it nobody else can guess the id of the message, which is a hash: Flower takes a reply from any
        node that names the id.
        """
        head = {
            "format": FORMAT,
            "action": self.action,
            "nonce": secrets.token_hex(16),
            "federation": self.federation,
            "number": self.number,
            "total": self.total,
            "clients": list(self.clients),
            "labels": list(self.labels),
            "part": self.part,
        }
        return packed(head, {} if self.weights is None else {"weights": self.weights})

    @classmethod
    def of(cls, content: RecordDict) -> Request:
        """The request in `content`, for a node: its weights are checked later, against the node's own model.

        Raises:
            RejectedError: if it is none.
        """
        head = head_of(content)
        action = word(head, "action")
        if action not in _ACTIONS:
            raise RejectedError(f"the request has the action {action!r}; this holdfast knows {', '.join(_ACTIONS)}")
        federation = word(head, "federation")
        if len(federation) != _FEDERATION_LENGTH or not set(federation) <= set("0123456789abcdef"):
            raise RejectedError("the request names no federation; names are 32 hexadecimal digits")
        total = whole(head, "total")
        if not 0 <= total <= _MOST_CLIENTS:
            raise RejectedError(f"the request says that there are {total} clients; at most {_MOST_CLIENTS} can be")
        clients = tuple(wholes(head, "clients"))
        if any(first >= second for first, second in itertools.pairwise(clients)):
            raise RejectedError("the request's clients are not ascending")
        if clients and not 0 <= clients[0] <= clients[-1] < total:
            raise RejectedError(f"the request is for client {clients[-1]} of {total}")
        number = whole(head, "number")
        if number < 0:
            raise RejectedError(f"the request is for round {number}")
        return cls(action, federation, number, total, clients, tuple(words(head, "labels")), word(head, "part"))


def packed(head: dict[str, Any], arrays: dict[str, Tensor]) -> RecordDict:
    """Plain values and arrays as records."""
    held = ArrayRecord({name: Array(tensor.contiguous().numpy()) for name, tensor in arrays.items()})
    return RecordDict({HEAD: ConfigRecord({"format": FORMAT, **head}), ARRAYS: held})


def head_of(content: RecordDict) -> ConfigRecord:
    """The plain values of a request or a reply.

    Raises:
        RejectedError: if there are none, or of another format.
    """
    head = content.get(HEAD)
    if not isinstance(head, ConfigRecord):
        raise RejectedError("it has no part named 'holdfast'; the sender isn't holdfast")
    if (spoken := head.get("format")) != FORMAT:
        raise RejectedError(f"it is of format {spoken!r} and not {FORMAT}; install the same holdfast on all sides")
    return head


def array(content: RecordDict, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The array called `name`, if it is exactly what must come.

    Raises:
        RejectedError: if it is missing, or its size, dtype or shape is another; nothing large is read or made before.
    """
    arrays = content.get(ARRAYS)
    record = arrays.get(name) if isinstance(arrays, ArrayRecord) else None
    if not isinstance(record, Array):
        raise RejectedError(f"it has no array {name!r}")
    return torch.from_numpy(read_array(name, record, shape, torch.empty(0, dtype=dtype).numpy().dtype).copy())


def word(head: ConfigRecord, name: str) -> str:
    """A short text of the head."""
    value = head.get(name)
    if not isinstance(value, str):
        raise RejectedError(f"{name!r} is {shown(value)} and not text")
    return value


def whole(head: ConfigRecord, name: str) -> int:
    """A whole number of the head."""
    value = head.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RejectedError(f"{name!r} is {shown(value)} and not a whole number")
    return value


def wholes(head: ConfigRecord, name: str, count: int | None = None) -> list[int]:
    """A list of whole numbers of the head, of `count` where that is known."""
    value = head.get(name)
    if not isinstance(value, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        raise RejectedError(f"{name!r} is {shown(value)} and not a list of whole numbers")
    if count is not None and len(value) != count:
        raise RejectedError(f"{name!r} has {len(value)} numbers where {count} must come")
    return list(value)  # type: ignore[arg-type]


def words(head: ConfigRecord, name: str) -> list[str]:
    """A list of texts of the head."""
    value = head.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RejectedError(f"{name!r} is {shown(value)} and not a list of texts")
    return list(value)  # type: ignore[arg-type]


def shown(value: object, most: int = 40) -> str:
    """A value that somebody else sent, for a sentence: short, on one line, and nothing that a terminal obeys."""
    text = value[: most + 1] if isinstance(value, (str, bytes, list, tuple)) else value
    return ascii(text)[:most]


def sentence(text: object, most: int = 300) -> str:
    """A sentence that somebody else sent, for a log: of bounded length, in printable letters."""
    line = " ".join(str(text)[: 4 * most].split())[:most]
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def unreadable(error: Exception) -> str:
    """Why a message can't be read, as a sentence."""
    if isinstance(error, RejectedError):
        return str(error)
    return f"the reply can't be read: {type(error).__name__}, {sentence(error, 100)}"
