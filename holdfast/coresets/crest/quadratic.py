"""A quadratic model of the loss around the weights at which coresets were chosen, and how far it can be trusted.

F(delta) = L + <g, delta> + 1/2 sum_k H_k delta_k^2 (CREST, Eq. 2.6 of the dissertation,
https://escholarship.org/uc/item/0399v1qw, with a diagonal H). While it predicts the loss at the current weights, the
gradients that the coresets were chosen by are still about right; once it is off by more than a tolerance, they are
chosen again (Eq. 2.10). Gradient and curvature are averaged over time, because those of one mini-batch, and of one
random probe, say little (Eq. 2.8 and 2.9).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.primitives.curvature import Smoothed


class QuadraticModel:
    """The loss as a quadratic function of the way from an anchor.

    Args:
        order: 1 leaves the curvature out.
        memory: beta_1 and beta_2 of the averages over time; with none a trust region goes by its own mini-batches
            alone, with signs.

    Attributes:
        curvature_norm: mean norm of the curvature over the mini-batches of the trust region, 0 for a model of order
            1.
    """

    def __init__(self, *, order: int = 2, memory: tuple[float, float] | None = (0.9, 0.999)) -> None:
        self.order = order
        self.curvature_norm = 0.0
        self._averages = None if memory is None else Smoothed(*memory)
        self._anchor: Tensor | None = None
        self._loss = 0.0
        self._gradient: Tensor | None = None
        self._curvature: Tensor | None = None
        self._terms = 0
        self._norms = 0.0

    def begin(self, weights: Tensor, loss: float) -> None:
        """Start a trust region.

        Args:
            weights: the anchor, shape (parameters,).
            loss: there.
        """
        self._anchor, self._loss = weights.clone(), loss
        self._gradient, self._curvature = torch.zeros_like(weights), torch.zeros_like(weights)
        self._terms, self._norms = 0, 0.0

    def add(self, gradient: Tensor, diagonal: Tensor) -> None:
        """Take in a mini-batch coreset at the anchor.

        Args:
            gradient: of its loss, shape (parameters,).
            diagonal: of its Hessian, shape (parameters,); ignored by a model of order 1.
        """
        assert self._gradient is not None and self._curvature is not None
        if self._averages is not None:
            gradient, diagonal = self._averages.add(gradient, diagonal)
        self._gradient += gradient
        self._curvature += diagonal
        self._terms += 1
        self._norms += float(diagonal.norm())
        self.curvature_norm = self._norms / self._terms if self.order > 1 else 0.0

    def predict(self, weights: Tensor) -> float:
        """F at these weights."""
        assert self._anchor is not None and self._gradient is not None and self._curvature is not None
        way, count = weights - self._anchor, max(self._terms, 1)
        predicted = self._loss + float(self._gradient @ way) / count
        if self.order > 1:
            predicted += 0.5 * float((self._curvature * way) @ way) / count
        return predicted

    def error(self, weights: Tensor, loss: float) -> float:
        """rho, by how much of the loss the model is off."""
        return abs(self.predict(weights) - loss) / max(loss, torch.finfo(torch.float32).tiny)

    def state_dict(self) -> dict[str, Any]:
        """The trust region and the averages."""
        expansion = (
            {}
            if self._anchor is None
            else {
                "anchor": self._anchor,
                "gradient": self._gradient,
                "curvature": self._curvature,
            }
        )
        return {
            "averages": {} if self._averages is None else self._averages.state_dict(),
            "region": expansion,
            "loss": self._loss,
            "seen": self._terms,
            "norms": self._norms,
            "curvature_norm": self.curvature_norm,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if self._averages is not None:
            self._averages.load_state_dict(state["averages"])
        expansion = state["region"]
        self._anchor, self._gradient = expansion.get("anchor"), expansion.get("gradient")
        self._curvature = expansion.get("curvature")
        self._loss, self._terms, self._norms = state["loss"], state["seen"], state["norms"]
        self.curvature_norm = state["curvature_norm"]
