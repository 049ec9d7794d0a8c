"""How hard each example is, as a number: what one-shot pruning keeps the top of, and what selections are judged by.

EL2N and GraNd (Paul, Ganguli and Dziugaite 2021, https://arxiv.org/abs/2107.07075) are norms of the error and of the
last layer's gradient early in training; forgetting (Toneva et al. 2019, https://arxiv.org/abs/1812.05159) counts how
often an example that was right turned wrong. They need a training run of their own, so they make no training shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.training.model_outputs import ModelOutputs


def el2n(models: Sequence[nn.Module], examples: Examples) -> Tensor:
    """The norm of softmax - one-hot, averaged over models that were trained a little from different starts.

    Returns:
        float32 of shape (n,).
    """
    return torch.stack([ModelOutputs(model, examples).residuals().norm(dim=1) for model in models]).mean(0)


def grand(models: Sequence[nn.Module], examples: Examples, *, head: str | None = None) -> Tensor:
    """The norm of the last layer's gradient, averaged over models: |e| sqrt(|h|^2 + 1), from its two factors.

    Returns:
        float32 of shape (n,).
    """
    norms = list[Tensor]()
    for model in models:
        outputs = ModelOutputs(model, examples, features=True, head=head)
        norms.append(gradient_norms(outputs.residuals(), outputs.features()))
    return torch.stack(norms).mean(0)


def gradient_norms(residuals: Tensor, features: Tensor) -> Tensor:
    """Norms of last-layer gradients, weights and bias, shape (n,)."""
    norms: Tensor = residuals.norm(dim=1) * (features.square().sum(1) + 1).sqrt()
    return norms


class Forgetting:
    """Counts how often each example was right and then wrong.

    Args:
        n: how many examples there are.
    """

    def __init__(self, n: int) -> None:
        self._events = torch.zeros(n, dtype=torch.int64)
        self._right = torch.zeros(n, dtype=torch.bool)
        self._ever = torch.zeros(n, dtype=torch.bool)

    def record(self, right: Tensor) -> None:
        """Take in which examples are classified rightly now, bool of shape (n,)."""
        self._events += self._right & ~right
        self._ever |= right
        self._right = right.clone()

    @property
    def scores(self) -> Tensor:
        """Forgetting events of each example, int64 of shape (n,); one more than the most for those never right."""
        most = int(self._events.max()) + 1 if len(self._events) else 0
        return torch.where(self._ever, self._events, most)

    def state_dict(self) -> dict[str, Any]:
        """The counts so far."""
        return {"events": self._events, "right": self._right, "ever": self._ever}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._events, self._right, self._ever = state["events"], state["right"], state["ever"]
