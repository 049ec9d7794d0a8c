"""GradMatch: a subset and weights whose gradients add up to the gradient of the whole class.

Killamsetty et al., "GRAD-MATCH: Gradient Matching based Data Subset Selection for Efficient Deep Model Training" (ICML
2021, https://arxiv.org/abs/2103.00123). In each class, positive orthogonal matching pursuit on the last layer's
gradients, of which the rows of the class's own logit are taken. It often needs fewer vectors than the budget has;
random examples fill up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.coresets.baselines.subset import SubsetPolicy, class_parts
from holdfast.errors import ConfigError
from holdfast.primitives.matching_pursuit import positive_matching_pursuit
from holdfast.training.policy import Context


@dataclass(kw_only=True)
class GradMatch(SubsetPolicy):
    """Matches the gradient of each class by few weighted examples.

    Attributes:
        ridge: penalty on large weights.
    """

    name: ClassVar[str] = "gradmatch"
    needs_features: ClassVar[bool] = True

    ridge: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ridge >= 0:
            raise ConfigError(f"ridge of gradmatch is {self.ridge}; give 0 or more")

    def choose(self, context: Context, pool: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Matching pursuit in each class, and random examples of weight one for what is left of its budget."""
        chosen, weights = list[Tensor](), list[Tensor]()
        for label, members, share in class_parts(context.examples.labels, pool, size):
            features = context.outputs.features(members)
            own = context.outputs.residuals(members)[:, label, None]
            gradients = torch.cat([own * features, own], 1)
            matched = positive_matching_pursuit(gradients, gradients.sum(0), share, ridge=self.ridge)
            rest = torch.ones(len(members), dtype=torch.bool)
            rest[matched.chosen] = False
            left = rest.nonzero().flatten()
            order = torch.randperm(len(left), generator=context.stream("fill", label))
            filled = left[order[: share - len(matched.chosen)]]
            chosen += [members[matched.chosen], members[filled]]
            weights += [matched.weights, torch.ones(len(filled), dtype=torch.float64)]
        return torch.cat(chosen), torch.cat(weights)
