"""What a client's reply must be before a strategy computes with it.

A reply comes from somebody else's machine. What is refused of it is a sentence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.errors import DataError
from holdfast.integrations.flower.messages.arrays import RejectedError, read_array

#: The array record of a second vector beside the model, on both ways.
SECOND_VECTOR = "second-vector"


class SentModel:
    """The arrays that a round began with, as the flat vector that aggregators work on.

    Floating arrays are aggregated. Others, such as the batch counters of batch normalisation, stay as the server has
    them: averages of integers are no integers.

    Args:
        arrays: by name, as the server sent them.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = dict(arrays)
        self.floating = [name for name, array in self.arrays.items() if array.dtype.kind == "f"]
        if not self.floating:
            raise DataError("the model has no floating-point array, so there is nothing to aggregate; check its record")
        self.vector = self._flat(self.arrays)

    def update(self, record: Mapping[str, Any]) -> Tensor:
        """What a client has added to the model, shape (P,).

        Args:
            record: Flower arrays by name.

        Raises:
            RejectedError: if an array is missing, unknown, of another shape or dtype, damaged, or not finite.
        """
        if set(record) != set(self.arrays):
            odd = sorted(set(record) ^ set(self.arrays))
            raise RejectedError(f"its arrays are not those of the model ({odd[0]!r} is missing or unknown)")
        received = {name: read_array(name, record[name], like.shape, like.dtype) for name, like in self.arrays.items()}
        update = self._flat(received) - self.vector
        if not bool(update.isfinite().all()):
            raise RejectedError("its update is not finite")
        return update

    def parameters(self) -> Tensor:
        """Which of the P numbers are parameters and no running statistics, bool of shape (P,)."""
        kinds = [not name.endswith(("running_mean", "running_var")) for name in self.floating]
        sizes = torch.tensor([self.arrays[name].size for name in self.floating])
        return torch.tensor(kinds).repeat_interleave(sizes)

    def plus(self, step: Tensor) -> dict[str, NDArray[Any]] | None:
        """The model after the server's step, shape (P,); None if it is no longer finite."""
        moved = self.vector + step
        sizes = [self.arrays[name].size for name in self.floating]
        after = dict(self.arrays)
        for name, part in zip(self.floating, torch.split(moved, sizes), strict=True):
            like = self.arrays[name]
            values = part.clamp(min=0) if name.endswith("running_var") else part
            after[name] = values.numpy().reshape(like.shape).astype(like.dtype)
        finite = all(np.isfinite(after[name]).all() for name in self.floating)
        return after if finite else None

    def zeros(self) -> SentModel:
        """Zeros in place of all floating arrays, without the others: what a second vector is compared with."""
        return SentModel({name: np.zeros_like(self.arrays[name]) for name in self.floating})

    def _flat(self, arrays: Mapping[str, NDArray[Any]]) -> Tensor:
        wide = np.result_type(*(self.arrays[name].dtype for name in self.floating), np.float32)
        return torch.from_numpy(np.concatenate([arrays[name].ravel().astype(wide) for name in self.floating]))


@dataclass(frozen=True, eq=False)
class Reply:
    """A reply that may be computed with.

    Attributes:
        node: Flower's id of the node, random in every run.
        client: the id that the client gives itself, where it does; stays the same from run to run.
        examples: how many examples it claims.
        metrics: all that it reports, by name.
    """

    node: int
    client: int | None
    examples: float
    metrics: Mapping[str, Any]

    @property
    def place(self) -> tuple[bool, int, int]:
        """Where it comes in the order of clients: by their own ids, and those without by node."""
        return (self.client is None, self.client or 0, self.node)


def only(records: Mapping[str, Any], kind: str) -> Any:
    """The one record of its kind in a reply."""
    if len(records) != 1:
        raise RejectedError(f"it has {len(records)} {kind} records and must have one")
    return next(iter(records.values()))


def read_metrics(node: int, metrics: Mapping[str, Any], examples_key: str, client_key: str, most: int) -> Reply:
    """A reply's numbers.

    Raises:
        RejectedError: if the number of examples is missing or absurd, or the client's id is none.
    """
    examples = metrics.get(examples_key)
    if not isinstance(examples, (int, float)) or not 0 < examples <= most:
        raise RejectedError(f"it claims {_short(examples)} as {examples_key!r}, which must be from 1 to {most}")
    client = metrics.get(client_key)
    if client is not None and not isinstance(client, int):
        raise RejectedError(f"it gives {_short(client)} as {client_key!r}, which must be an integer")
    return Reply(node, client, float(examples), metrics)


def read_loss(metrics: Mapping[str, Any], key: str) -> float:
    """The training loss at the received model that a client reports.

    Raises:
        RejectedError: if there is none, or it is negative or not finite.
    """
    loss = metrics.get(key)
    if not isinstance(loss, (int, float)) or not math.isfinite(loss) or loss < 0:
        raise RejectedError(f"it reports {_short(loss)} as {key!r}, which must be finite and not negative")
    return float(loss)


def alike(replies: Sequence[Reply]) -> list[Reply]:
    """The replies whose metrics have the names and lengths that most have, and are finite: only those can be averaged.

    Flower's own strategies stop the run where one client reports another set of metrics.
    """
    layouts = [_layout(reply.metrics) for reply in replies]
    counts = Counter(layout for layout in layouts if layout is not None)
    if not counts:
        return []
    usual = counts.most_common(1)[0][0]
    return [reply for reply, layout in zip(replies, layouts, strict=True) if layout == usual]


def _layout(metrics: Mapping[str, Any]) -> frozenset[tuple[str, int]] | None:
    for value in metrics.values():
        if not np.isfinite(value).all():
            return None
    return frozenset((name, len(value) if isinstance(value, list) else -1) for name, value in metrics.items())


def _short(value: object) -> str:
    return repr(value) if value is None or isinstance(value, (int, float)) else f"a {type(value).__name__}"
