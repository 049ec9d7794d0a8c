"""One view of each example, for the choice and for the training on it: a mini-batch chosen on a view stands for views.

By default a choice is made on clean images and training augments them anew at every step, so what is trained on is not
quite what was chosen. Keeping the view costs the memory of the augmented images and the variety of fresh ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.training.policy import Augmentation


@dataclass(frozen=True, eq=False)
class AugmentedViews:
    """Inputs of some of the examples, as they were augmented once.

    Attributes:
        positions: which examples, int64, ascending.
        views: their inputs, in the same order.
    """

    positions: Tensor
    views: Tensor

    @classmethod
    def of(
        cls, examples: Examples, positions: Tensor, augment: Augmentation, stream: torch.Generator
    ) -> AugmentedViews:
        """Augment the examples at `positions`, each once however often it is named."""
        some = torch.unique(positions)
        inputs, _ = examples.gather(some)
        if not isinstance(inputs, Tensor):
            raise ConfigError("crest keeps views of images only; leave cached_view out for texts")
        return cls(some, augment(inputs, stream))

    def __len__(self) -> int:
        """How many examples there are views of."""
        return len(self.positions)

    def gather(self, positions: Tensor) -> Tensor:
        """The views of the examples at `positions`, of any shape."""
        return self.views[torch.searchsorted(self.positions, positions)]

    def subset(self, positions: Tensor) -> AugmentedViews:
        """Those of the examples at `positions` alone."""
        some = torch.unique(positions)
        return AugmentedViews(some, self.gather(some))
