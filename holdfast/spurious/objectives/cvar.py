"""CVaR DRO: minimise the mean of the worst share of each batch, whoever these examples are.

Levy et al. 2020 (https://arxiv.org/abs/2010.05893). It needs no group labels; with label noise it chases the noise.
Published runs use alpha 0.1, 0.2 and 0.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.training.objective import Forward, Objective
from holdfast.training.policy import Uniform


def worst_share_mean(losses: Tensor, alpha: float) -> Tensor:
    """Mean of the worst share `alpha` of the losses; the last of them counts by the fraction that is in the share.

    Args:
        losses: shape (b,).
        alpha: the share, above 0 and at most 1.

    Returns:
        A scalar: the mean at alpha = 1, the maximum at alpha = 1 / b and below.

    Example:
        >>> import torch
        >>> float(worst_share_mean(torch.tensor([1.0, 4.0, 2.0, 3.0]), 0.375))  # (4 + 3 / 2) / 1.5
        3.6666667461395264
    """
    count = max(alpha * len(losses), 1)
    worst = losses.topk(min(math.ceil(count), len(losses))).values
    weights = (count - torch.arange(len(worst), device=worst.device)).clamp(max=1) / count
    return (weights * worst).sum()


@dataclass(eq=False)
class CvarLoss(Objective):
    """Mean of the worst share of each batch.

    Attributes:
        alpha: the share, above 0; 1 is plain training.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"alpha of cvar is {self.alpha}; give a share above 0 and at most 1")

    def __call__(self, forward: Forward) -> Tensor:
        """The mean of the batch's worst losses."""
        return worst_share_mean(forward.batch.weights * forward.losses, self.alpha)


@dataclass(frozen=True)
class CvarDRO(Uniform):
    """Minimise the mean of the worst share of each batch; needs no group labels.

    Attributes:
        alpha: the share, above 0; 1 is plain training.
    """

    name: ClassVar[str] = "cvar"
    promises_worst_group = True
    guesses_groups = True

    alpha: float = 0.2

    def __post_init__(self) -> None:
        self.objective()

    def objective(self) -> CvarLoss:
        """The mean of the worst share."""
        return CvarLoss(self.alpha)
