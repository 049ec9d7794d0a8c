"""A mini-batch of each of several clients, and the same clients one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.federated.engine.draws import Draws


@dataclass(frozen=True, eq=False)
class ClientBatch:
    """One mini-batch of each of several clients.

    Attributes:
        inputs: shape (clients, batch, ...).
        labels: shape (clients, batch), or (clients, batch, ...) where a target is several numbers.
        weights: shape (clients, batch); each row sums to one, padding has weight zero.
        clients: ids, int64 of shape (clients,).
        draws: how many batches each client had drawn before, int64 of shape (clients,).
        rows: which examples of the training data they are, int64 of shape (clients, batch).
        even: whether nothing is padded, so that weights need not be looked at.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor
    clients: Tensor
    draws: Tensor
    rows: Tensor
    even: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def one(self, place: int) -> ClientBatch:
        """The batch of the client at that place alone, without its padding."""
        row = slice(place, place + 1)
        real = self.labels.shape[1] if self.even else int((self.weights[place] > 0).sum())
        return ClientBatch(
            self.inputs[row, :real],
            self.labels[row, :real],
            self.weights[row, :real],
            self.clients[row],
            self.draws[row],
            self.rows[row, :real],
            even=True,
        )

    def example(self, place: int) -> ClientBatch:
        """Each client's example at that place as a batch of its own; padding counts as an example here."""
        one = slice(place, place + 1)
        return ClientBatch(
            self.inputs[:, one],
            self.labels[:, one],
            torch.ones_like(self.weights[:, one]),
            self.clients,
            self.draws,
            self.rows[:, one],
            even=True,
        )

    def repeat(self, times: int) -> ClientBatch:
        """The same batches `times` over, for several models per client: row ``i * clients + k`` is client k's."""
        parts = (self.inputs, self.labels, self.weights, self.clients, self.draws, self.rows)
        inputs, labels, weights, clients, draws, rows = (torch.cat([part] * times) for part in parts)
        return ClientBatch(inputs, labels, weights, clients, draws, rows, self.even)


def one_by_one(
    parameters: Tensor, batch: ClientBatch, draws: Draws | None
) -> Iterator[tuple[Tensor, ClientBatch, Draws | None]]:
    """Row after row, each with its batch and its draws."""
    for place in range(len(parameters)):
        yield parameters[place : place + 1], batch.one(place), None if draws is None else draws.one(place)
