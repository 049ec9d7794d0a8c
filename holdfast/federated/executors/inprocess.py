"""Clients in this process: one after another (`serial`, the readable reference) or a chunk at a time (`batched`).

Both run on one torch thread, like a worker of the pool: two threads on one small step are slower than one, and the
number of threads would change results by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from holdfast.federated.executors.base import Executor
from holdfast.federated.scoring import ClientScores
from holdfast.federated.site import Order, PartName
from holdfast.primitives.threads import torch_threads


class InProcess(Executor):
    """Runs chunks one after another; chunks of one client are the serial reference."""

    def train(self, orders: Sequence[Order], received: Tensor, updates: Tensor, losses: Tensor) -> None:
        """Order after order."""
        first = 0
        with torch_threads(1):
            for order in orders:
                rows = slice(first, first + len(order.clients))
                updates[rows], losses[rows] = self.site.train(order, received)
                first = rows.stop

    def tune(self, label: str, chunks: Sequence[Tensor], received: Tensor) -> None:
        """Chunk after chunk."""
        with torch_threads(1):
            for chunk in chunks:
                self.site.tune(label, chunk, received)

    def score(self, chunks: Sequence[Tensor], part: PartName, shared: Tensor, label: str | None) -> list[ClientScores]:
        """Chunk after chunk."""
        with torch_threads(1):
            return [self.site.score(chunk, part, shared, label) for chunk in chunks]
