"""GroupDRO: minimise a weighted sum of the groups' losses, with weights that follow the worst ones.

Sagawa et al. 2020 (https://arxiv.org/abs/1911.08731), Algorithm 1; a baseline of SPARE and PDE: groups are drawn
equally often, the weight of each grows exponentially with its loss, and the loss uses the weights already updated. It
needs training group labels, and small learning rates with strong weight decay (Waterbirds 1e-5 and 1, CelebA 1e-5 and
0.1): trained fast it ends near plain training. `GroupDRO` is the method; the loss alone is for sampling of your own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.spurious.reweighting.balancing import GroupBalanced
from holdfast.training.objective import Forward, NewOptimizer, Objective


def group_losses(losses: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Mean loss of each group in a batch.

    Args:
        losses: loss of each example, shape (b,).
        groups: group of each example, int64 of shape (b,).
        n_groups: how many groups there are.

    Returns:
        Means of shape (groups,), 0 for a group that is absent; and which are present, bool of shape (groups,).
    """
    counts = torch.bincount(groups, minlength=n_groups)
    sums = losses.new_zeros(n_groups).index_add(0, groups, losses)
    return sums / counts.clamp(min=1), counts > 0


@dataclass(eq=False)
class GroupDroLoss(Objective):
    """Sum of the groups' losses, weighted by q, which grows exponentially with them.

    The weights are kept as logarithms: a group that is easy for thousands of steps would otherwise underflow to a
    weight of 0, from which it could never return.

    Attributes:
        eta_q: step size of the weights; 0 keeps them uniform.
        adjustment: C of the generalisation adjustment C / sqrt(group size), which makes small groups count as harder in
            the weights' update (Sagawa et al. try 0 to 5).
    """

    eta_q: float = 0.01
    adjustment: float = 0.0
    _log_q: Tensor | None = field(default=None, init=False, repr=False)
    _groups: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False)
    _margins: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False)

    def __post_init__(self) -> None:
        for option in ("eta_q", "adjustment"):
            if not getattr(self, option) >= 0:
                raise ConfigError(f"{option} of group-dro is {getattr(self, option)}; give 0 or more")

    @property
    def q(self) -> Tensor:
        """Weight of each group, float32 of shape (groups,), summing to one."""
        return self._prepared().exp()

    def prepare(
        self, examples: Examples, model: nn.Module | None = None, new_optimizer: NewOptimizer | None = None
    ) -> None:
        """Look up the groups; the weights start uniform over those that have examples."""
        self._groups = examples.require_groups("group-dro")
        counts = torch.bincount(self._groups)
        self._margins = self.adjustment / counts.clamp(min=1).sqrt()
        self._log_q = (counts > 0).float().log().log_softmax(0)

    def __call__(self, forward: Forward) -> Tensor:
        """Update q by the batch's group losses, then sum q_g L_g; a group that is absent only shares in normalising."""
        losses = forward.batch.weights * forward.losses
        log_q, device = self._prepared().to(losses.device), losses.device
        by_group, present = group_losses(losses, self._groups[forward.batch.positions].to(device), len(log_q))
        harder = torch.where(present, by_group.detach() + self._margins.to(device), 0)
        self._log_q = (log_q + self.eta_q * harder).log_softmax(0)
        return (self._log_q.exp() * by_group).sum()

    def state_dict(self) -> dict[str, Any]:
        """The weights."""
        return {"log_q": self._log_q}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the weights."""
        self._log_q = state["log_q"]

    def _prepared(self) -> Tensor:
        if self._log_q is None:
            raise ConfigError("group-dro has not seen the training set; call objective.prepare(train) before training")
        return self._log_q


@dataclass(frozen=True)
class GroupDRO(GroupBalanced):
    """Draw groups equally often and follow the worst of them; needs training group labels.

    Attributes:
        eta_q: step size of the groups' weights; 0 keeps them uniform.
        adjustment: C of the generalisation adjustment C / sqrt(group size) in the weights' update.
    """

    name: ClassVar[str] = "group-dro"

    eta_q: float = 0.01
    adjustment: float = 0.0

    def __post_init__(self) -> None:
        self.objective()

    def objective(self) -> GroupDroLoss:
        """The sum of the groups' losses with weights that follow them."""
        return GroupDroLoss(self.eta_q, self.adjustment)
