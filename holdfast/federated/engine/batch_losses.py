"""Losses and scores of several clients' examples by one criterion, and the penalty on a row's weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.criterion import Criterion, PerExample
from holdfast.federated.engine.row_layout import RowLayout


class BatchLosses:
    """A criterion for outputs of shape (clients, batch, ...).

    Args:
        criterion: losses and scores of examples.
        target_dims: dimensions of one target: 0 for a label or a number.
    """

    def __init__(self, criterion: Criterion, target_dims: int = 0) -> None:
        self.criterion, self.target_dims = criterion, target_dims

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Loss of each example: outputs (..., c) and labels (...) to (...)."""
        return self._by_example(self.criterion.losses, outputs, labels)

    def scores(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Score of each example, of the same shapes; bool where it says whether an example is told right."""
        return self._by_example(self.criterion.scores, outputs, labels)

    def correct(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Whether each example is told right, bool.

        Raises:
            ConfigError: if the task has no right and wrong.
        """
        if not self.criterion.is_accuracy:
            raise ConfigError(f"this needs classes, and clients are scored by {self.criterion.measure}")
        return self.scores(outputs, labels)

    def sum_of_means(self, outputs: Tensor, batch: ClientBatch) -> Tensor:
        """The clients' mean losses, added up; clients don't share parameters, so each gets its own gradient."""
        if batch.even and self.criterion.cross_entropy:
            # Every client has as many examples, so the sum of means is a multiple of the mean of all: one fused kernel.
            return len(batch) * F.cross_entropy(outputs.flatten(0, 1), batch.labels.flatten())
        return (self.losses(outputs, batch.labels) * batch.weights).sum()

    def mean_of_one(self, outputs: Tensor, batch: ClientBatch) -> Tensor:
        """The mean loss of a single client, whose outputs are of shape (batch, ...)."""
        if batch.even and self.criterion.cross_entropy:
            return F.cross_entropy(outputs, batch.labels[0])
        return self.sum_of_means(outputs[None], batch)

    def _by_example(self, function: PerExample, outputs: Tensor, labels: Tensor) -> Tensor:
        leading = labels.ndim - self.target_dims
        flat = function(outputs.flatten(0, leading - 1), labels.flatten(0, leading - 1))
        return flat.view(labels.shape[:leading])


def penalty_vector(strength: float, layout: RowLayout, initial: Tensor) -> Tensor | None:
    """What the square of each number of a row is multiplied by: matrices are penalised, the rest is not."""
    if strength == 0:
        return None
    parts = [
        torch.full((size,), strength * (len(shape) > 1), dtype=initial.dtype, device=initial.device)
        for size, shape in zip(layout.sizes, layout.shapes, strict=True)
    ]
    return torch.cat(parts)
