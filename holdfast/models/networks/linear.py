"""A linear classifier on flattened inputs: convex, so what a method does to it can be checked in closed form."""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from holdfast.models.shapes import expect_shape


class LinearClassifier(nn.Module):
    """One linear layer; the features are the flattened inputs.

    Args:
        input_shape: shape of one input.
        n_classes: how many logits.
    """

    def __init__(self, input_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(prod(expect_shape("a linear classifier", input_shape)), n_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """What the head sees, (n, values of one input)."""
        return inputs.flatten(1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits
