"""Clients in this process: one after another (`serial`, the readable reference) or a chunk at a time (`batched`).

Torch has one thread until the executor is closed, like a worker of the pool: two threads on one small step are slower
than one, switching back and forth is slower still, and the number of threads would change results by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from torch import Tensor

from holdfast.federated.engine.executors.base import Executor
from holdfast.federated.engine.site import Order, PartName, Site
from holdfast.federated.metrics.scoring import ClientScores
from holdfast.federated.personalization.base import Tuner
from holdfast.primitives.threads import torch_threads


class InProcess(Executor):
    """Runs chunks one after another; chunks of one client are the serial reference."""

    def __init__(self, site: Site, chunk: int) -> None:
        super().__init__(site, chunk)
        self._alone = ExitStack()
        self._alone.enter_context(torch_threads(1))

    def close(self) -> None:
        """Give torch its threads back."""
        self._alone.close()

    def train(self, orders: Sequence[Order], received: Tensor, updates: Tensor, losses: Tensor) -> None:
        """Order after order."""
        first = 0
        for order in orders:
            rows = slice(first, first + len(order.clients))
            self.site.train(order, received, updates[rows], losses[rows])
            first = rows.stop

    def tune(self, tuner: Tuner, chunks: Sequence[Tensor], received: Tensor) -> None:
        """Chunk after chunk."""
        for chunk in chunks:
            self.site.tune(tuner, chunk, received)

    def score(self, chunks: Sequence[Tensor], part: PartName, shared: Tensor, label: str | None) -> list[ClientScores]:
        """Chunk after chunk."""
        return [self.site.score(chunk, part, shared, label) for chunk in chunks]
