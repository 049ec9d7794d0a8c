"""PDE's two-layer CNN with cubic activation (eq. 2.3), in which the theory of spurious features is exact.

The paper is https://arxiv.org/abs/2306.04949. ``f(x) = sum_j s_j sum_p (w_j . x^(p) + b_j)^3`` over the patches p of x.
Two logits are returned whose difference is f, so that cross-entropy on them is the logistic loss of f. Two forms are in
use: `pure` is the paper's equation (every sign +1, no bias), `released` is what the authors' program runs (20 filters
per logit, a bias, a ten times smaller start). The bias matters: its linear term lets the core feature start from a tiny
initialisation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError


class CubicCNN(nn.Module):
    """Sum of cubed filter responses over the patches of an input of shape (patches, dimension).

    Args:
        dimension: size of one patch, d.
        n_filters: how many filters, J.
        bias: whether a filter has a bias b_j.
        signed: whether the first half of the filters votes for class 0 (s_j = -1); otherwise all vote for class 1.
        init_scale: factor on the start, which is uniform within ±1/sqrt(d).

    Example:
        >>> import torch
        >>> CubicCNN.pure(50)(torch.randn(8, 3, 50)).shape
        torch.Size([8, 2])
    """

    def __init__(
        self, dimension: int, n_filters: int = 40, *, bias: bool = False, signed: bool = False, init_scale: float = 1.0
    ) -> None:
        super().__init__()
        if signed and n_filters % 2:
            raise ConfigError(
                f"a signed cubic CNN splits its filters between two logits; {n_filters} is odd, give an even number"
            )
        self.filters = nn.Linear(dimension, n_filters, bias=bias)
        self.head = nn.Linear(n_filters, 2, bias=False).requires_grad_(False)
        with torch.no_grad():
            for parameter in self.filters.parameters():
                parameter.mul_(init_scale)
            votes_for_one = torch.arange(n_filters) >= (n_filters // 2 if signed else 0)
            self.head.weight[0] = (~votes_for_one).to(self.head.weight)
            self.head.weight[1] = votes_for_one.to(self.head.weight)

    @classmethod
    def released(cls, dimension: int) -> CubicCNN:
        """The network of the authors' program: 20 filters per logit, bias, initial scale 0.1."""
        return cls(dimension, bias=True, signed=True, init_scale=0.1)

    @classmethod
    def pure(cls, dimension: int) -> CubicCNN:
        """The network of eq. 2.3: 40 filters, no bias, every sign +1."""
        return cls(dimension)

    @property
    def signs(self) -> Tensor:
        """s_j of each filter, (filters,)."""
        return self.head.weight[1] - self.head.weight[0]

    def features(self, inputs: Tensor) -> Tensor:
        """What the fixed head sees: cubed responses summed over patches, (n, filters).

        Args:
            inputs: (n, patches, dimension).
        """
        responses: Tensor = self.filters(inputs)
        return responses.pow(3).sum(dim=1)

    def score(self, inputs: Tensor) -> Tensor:
        """f(x), positive for class 1, (n,)."""
        return self.features(inputs) @ self.signs

    def forward(self, inputs: Tensor) -> Tensor:
        """Two logits whose difference is `score`, (n, 2)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
