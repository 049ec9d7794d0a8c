"""Which epoch is kept: the one with the best score on validation data, the first on ties."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn


@dataclass
class BestEpoch:
    """The best epoch so far.

    Attributes:
        score: its score.
        epoch: its number, -1 before the first.
        full_epochs: training examples gone through until then, in passes over the whole training set.
        weights: the model's state after it.
    """

    score: float = -math.inf
    epoch: int = -1
    full_epochs: float = 0.0
    weights: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, score: float, epoch: int, full_epochs: float, model: nn.Module) -> None:
        """Keep the model's state if its score is better than all before."""
        if score > self.score:
            self.score, self.epoch, self.full_epochs = score, epoch, full_epochs
            self.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return dict(vars(self))

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> BestEpoch:
        """What `state_dict` was taken of; every entry must be there, since a default would be a lie."""
        return cls(state["score"], state["epoch"], state["full_epochs"], state["weights"])
