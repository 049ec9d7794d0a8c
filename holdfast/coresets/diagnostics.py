"""How good the gradients of chosen mini-batches are: error, bias and variance against the gradient of the whole set.

With g the gradient of a weighted mini-batch and G that of all examples, over many draws of the mini-batch: the bias is
|E g - G|, the variance E |g - G|^2 (it contains the squared bias). A bias that is estimated from R draws is never below
about sqrt(variance / R), so that floor belongs beside it. All gradients are of all weights.

By default they are those that training would take: batch norm normalises by the mini-batch itself, so what a
mini-batch is made of changes every gradient in it, and that is part of its error. The whole set then goes through in
pieces of 1,024, whose statistics are nearly those of all. With ``running`` statistics examples don't influence one
another: that is what theory speaks of, and not what a network with batch norm is trained by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.coresets.crest.gradient_proxies import Statistics, weighted_loss
from holdfast.data.examples import Examples
from holdfast.primitives.curvature import gradient_of


@dataclass(frozen=True)
class GradientQuality:
    """What many mini-batches of one kind are worth, in terms of the gradient of the whole set.

    Attributes:
        bias: |E g - G| / |G|.
        floor: below which the bias can't be told from none with so many draws, in the same unit.
        variance: E |g - G|^2 / |G|^2.
        error: E |g - G| / |G|.
    """

    bias: float
    floor: float
    variance: float
    error: float


def gradient(
    model: nn.Module,
    examples: Examples,
    positions: Tensor,
    weights: Tensor | None = None,
    *,
    statistics: Statistics = "batch",
) -> Tensor:
    """The gradient of mean(weight x loss) with respect to all weights that train, shape (parameters,).

    Args:
        model: the model, which is left as it is.
        examples: the set.
        positions: which examples; up to 1,024 of them share their batch statistics.
        weights: of those in the loss, all one by default.
        statistics: what batch norm goes by; `batch` as in training.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    whole: Tensor | None = None
    weight = torch.ones(len(positions)) if weights is None else weights
    for some, by in zip(torch.split(positions, 1024), torch.split(weight, 1024), strict=True):
        part = gradient_of(weighted_loss(model, examples, some, by, statistics), trained) * (len(some) / len(positions))
        whole = part if whole is None else whole + part
    assert whole is not None
    return whole


def gradient_quality(gradients: Sequence[Tensor], whole: Tensor) -> GradientQuality:
    """Compare gradients of mini-batches with that of the whole set.

    Args:
        gradients: of many mini-batches of one kind, each of shape (parameters,).
        whole: of all examples.

    Returns:
        Bias, variance and error, relative to the norm of `whole`.
    """
    drawn, norm = torch.stack(list(gradients)), float(whole.norm())
    off = (drawn - whole).norm(dim=1)
    variance = float(off.square().mean())
    return GradientQuality(
        float((drawn.mean(0) - whole).norm()) / norm,
        (variance / len(drawn)) ** 0.5 / norm,
        variance / norm**2,
        float(off.mean()) / norm,
    )
