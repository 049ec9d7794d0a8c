"""FedRep: a shared representation, and a head per client that is trained first (Collins et al., ICML 2021).

The paper is https://arxiv.org/abs/2102.07078, Algorithm 1: in a round a client takes many steps with its head while the
representation that it received stands still, then steps with the representation while the head stands still. So the
representation is trained for heads that suit it, where FedPer moves both at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.personalization.partial.fedper import FedPer

if TYPE_CHECKING:
    from holdfast.federated.engine.stacked_clients import StackedClients


@dataclass(frozen=True)
class FedRep(FedPer):
    """Heads first, then the representation; heads take steps of the personal models' learning rate.

    Running statistics move in every training pass, whichever part takes the step, and are the representation's.

    Attributes:
        head_steps: steps of the head in a round, before those of the representation; as many as those by default.
    """

    name: ClassVar[str] = "fedrep"
    head_steps: int | None = None

    def __post_init__(self) -> None:
        if self.head_steps is not None and self.head_steps < 1:
            raise ConfigError(f"FedRep's head steps are {self.head_steps}; give at least 1")

    def draws(self, steps: Tensor) -> Tensor:
        """A mini-batch for each step of the head, and for each of the representation."""
        return steps + (steps if self.head_steps is None else self.head_steps)

    def fit(self, models: Tensor, columns: Tensor, stack: StackedClients) -> None:
        """``h <- h - eta_v dF/dh``, then ``phi <- phi - eta dF/dphi``."""
        of_head = models.new_zeros(models.shape[1]).index_fill_(0, columns, 1.0)
        counts = self.draws(stack.steps)
        heads = counts - stack.steps
        for place, batch in enumerate(stack.batches(counts)):
            now = models[: len(batch)]
            gradient = stack.gradient(now, batch)
            first = (place < heads[: len(batch)]).to(now.device)
            for which, part, rate, model in (
                (first, of_head, stack.personal_rate, ""),
                (~first, 1 - of_head, stack.learning_rate, "shared"),
            ):
                if which.any():
                    stepped = now[which]
                    stack.descend(stepped, gradient[which] * part, rate, model)
                    # What stands still stands still, whatever an optimizer decays or remembers.
                    now[which] = torch.where(part > 0, stepped, now[which])
