"""What a method does to the chosen model after training: DFR refits its last layer, say.

It runs once, on the weights of the best epoch, before the final evaluation; what it changes is what is saved as the
run's best checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from holdfast.data.examples import Splits


@dataclass(frozen=True, eq=False)
class Trained:
    """A training run that is over.

    Attributes:
        model: with the weights of the best epoch; to be changed in place.
        splits: the data; the training set has the groups that were inferred, where a policy did.
        seed: the run's.
        head: name of the model's last linear layer where it can't be found.
    """

    model: nn.Module
    splits: Splits
    seed: int
    head: str | None = None


class PostTraining:
    """A last step. Derive a dataclass and write `__call__`."""

    def __call__(self, trained: Trained) -> dict[str, Any]:
        """Change ``trained.model`` in place.

        Returns:
            What was done, as plain values for the run's results.
        """
        raise NotImplementedError
