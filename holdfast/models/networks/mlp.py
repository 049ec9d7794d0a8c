"""A multi-layer perceptron on flattened inputs; 300-128-128-C on 10x10 RGB digits is SPARE's and PDE's CPU protocol."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.models.shapes import expect_shape


class MLP(nn.Module):
    """Linear layers with ReLU between them, on flattened inputs.

    Args:
        input_shape: shape of one input; its product is the width of the input, 300 for (3, 10, 10).
        n_classes: how many logits.
        hidden: widths of the hidden layers.
        normalised: whether batch normalisation follows each hidden layer.

    Example:
        >>> import torch
        >>> MLP((3, 10, 10), 2).features(torch.zeros(4, 3, 10, 10)).shape
        torch.Size([4, 128])
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        n_classes: int,
        hidden: Sequence[int] = (128, 128),
        *,
        normalised: bool = False,
    ) -> None:
        super().__init__()
        widths = [prod(expect_shape("an MLP", input_shape)), *hidden]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) if normalised else nn.Identity() for width in hidden)
        self.head = nn.Linear(widths[-1], n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, last hidden width)."""
        hidden = inputs.flatten(1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = F.relu(norm(layer(hidden)))
        return hidden

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
