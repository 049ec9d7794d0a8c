"""Which epoch is kept: the one with the best score on validation data.

The worst group of a shortcut-follower is often at 0 % from the first epoch to the last, and a small one is at 100 % for
many: such a score decides nothing between them. The accuracy does then, unless the first of equals is asked for.
"""

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
        accuracy: its plain accuracy on the same data, which decides between equal scores; infinite where the first of
            them is to be kept.
        epoch: its number, -1 before the first.
        full_epochs: training examples gone through until then, in passes over the whole training set.
        weights: the model's state after it.
    """

    score: float = -math.inf
    accuracy: float = -math.inf
    epoch: int = -1
    full_epochs: float = 0.0
    weights: dict[str, Tensor] = field(default_factory=dict)

    def offer(
        self, score: float, epoch: int, full_epochs: float, model: nn.Module, *, accuracy: float = math.inf
    ) -> None:
        """Keep the model's state if its score, or at the same score its accuracy, is better than all before."""
        if (score, accuracy) > (self.score, self.accuracy):
            self.score, self.accuracy, self.epoch, self.full_epochs = score, accuracy, epoch, full_epochs
            self.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return dict(vars(self))

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> BestEpoch:
        """What `state_dict` was taken of; every entry must be there, since a default would be a lie.

        Only runs from before accuracies decided have none: they kept the first of equals, as an infinite one does.
        """
        accuracy = state.get("accuracy", math.inf)
        return cls(state["score"], accuracy, state["epoch"], state["full_epochs"], state["weights"])
