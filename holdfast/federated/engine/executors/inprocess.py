"""Clients in this process: one after another (`serial`, the readable reference) or a chunk at a time (`batched`).

Torch has one thread until the executor is closed, like a worker of the pool: two threads on one small step are slower
than one, switching back and forth is slower still, and the number of threads would change results by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from torch import Tensor

from holdfast.federated.engine.client_runtime import Assignment, ClientRuntime
from holdfast.federated.engine.executors.base import Executor
from holdfast.federated.metrics.scoring import ClientScores, PartName
from holdfast.federated.personalization.base import PostHocPersonalizer
from holdfast.primitives.threads import torch_threads


class InProcess(Executor):
    """Runs chunks one after another; chunks of one client are the serial reference."""

    def __init__(self, runtime: ClientRuntime, chunk: int) -> None:
        super().__init__(runtime, chunk)
        self._alone = ExitStack()
        self._alone.enter_context(torch_threads(1))

    def close(self) -> None:
        """Give torch its threads back."""
        self._alone.close()

    def train(self, assignments: Sequence[Assignment], received: Tensor, updates: Tensor, losses: Tensor) -> None:
        """Assignment after order."""
        first = 0
        for assignment in assignments:
            rows = slice(first, first + len(assignment.clients))
            self.runtime.train(assignment, received, updates[rows], losses[rows])
            first = rows.stop

    def personalize(self, method: PostHocPersonalizer, chunks: Sequence[Tensor], received: Tensor) -> None:
        """Chunk after chunk."""
        for chunk in chunks:
            self.runtime.personalize(method, chunk, received)

    def score(self, chunks: Sequence[Tensor], part: PartName, shared: Tensor, label: str | None) -> list[ClientScores]:
        """Chunk after chunk."""
        return [self.runtime.score(chunk, part, shared, label) for chunk in chunks]
