"""Whether mini-batches that were chosen a few steps ago may be trained on once more: two tests cheaper than a model.

CREST as published models the loss around the point of choice by a gradient and a noisy diagonal of the Hessian, on
several mini-batches, for the case that it will be asked. These two keep nothing but a loss, and work when asked.

``change`` looks once more at the subset of the first mini-batch, whose losses the choice knew: as long as its mean is
about what it was, so are the gradients (one forward pass). ``curvature`` takes a mini-batch's gradient g and one exact
product of its Hessian with the way d since the choice, and looks back along that way: L - <g, d> + 1/2 <d, H d> is the
loss at the choice as far as the loss is quadratic in between (a forward and about three backward passes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.coresets.crest.gradient_proxies import gradient_proxies, weighted_loss
from holdfast.coresets.crest.trust_region import TrustRegionSettings
from holdfast.primitives.curvature import flat, gradient_and_product

Validity = Literal["change", "curvature"]


@dataclass(frozen=True, eq=False)
class PointOfChoice:
    """What is remembered of a choice to test it by.

    Attributes:
        positions: examples that are looked at again, int64: a subset, or a mini-batch.
        loss: theirs at the choice, the mean of weight x loss.
        weights: of a mini-batch, shape (m,); none for a subset.
        at: all weights of the network at the choice, shape (parameters,), where the test needs the way since then.
    """

    positions: Tensor
    loss: float
    weights: Tensor | None = None
    at: Tensor | None = None

    @classmethod
    def of_subset(cls, positions: Tensor, losses: Tensor) -> PointOfChoice:
        """For ``change``: the losses of a subset, as the choice saw them."""
        return cls(positions, float(losses.mean()))

    @classmethod
    def of_mini_batch(cls, here: TrustRegionSettings, positions: Tensor, weights: Tensor) -> PointOfChoice:
        """For ``curvature``: a mini-batch's loss, and where the network is."""
        with torch.no_grad():
            loss = float(weighted_loss(here.model, here.examples, positions, weights, here.statistics))
        return cls(positions, loss, weights, flat(_trained(here.model)))

    def error(self, here: TrustRegionSettings) -> float:
        """By how much of the loss at the choice its estimate from here is off; what the tolerance bounds."""
        estimate = self._now(here) if self.weights is None else self._looking_back(here)
        return abs(estimate - self.loss) / max(self.loss, torch.finfo(torch.float32).tiny)

    def _now(self, here: TrustRegionSettings) -> float:
        seen = gradient_proxies(here.model, here.examples, self.positions, statistics=here.statistics)
        return float(seen.losses.mean())

    def _looking_back(self, here: TrustRegionSettings) -> float:
        assert self.weights is not None and self.at is not None
        parameters = _trained(here.model)
        way = flat(parameters) - self.at
        loss = weighted_loss(here.model, here.examples, self.positions, self.weights, here.statistics)
        gradient, curved = gradient_and_product(loss, parameters, way)
        return float(loss.detach()) - float(gradient @ way) + 0.5 * float(curved @ way)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"positions": self.positions, "loss": self.loss, "weights": self.weights, "at": self.at}


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
