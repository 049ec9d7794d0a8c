"""Gradient and diagonal of the Hessian of a loss, and their running averages.

Hutchinson's estimate of the diagonal is z * Hz for random signs z: its mean is diag(H), the variance of entry i is
sum_{j != i} H_ij^2, and it costs one more pass backward. One draw is noisy, so it is averaged over time as AdaHessian
(Yao et al. 2021, https://arxiv.org/abs/2006.00719) does it: a bias-corrected exponential average of gradients, and the
root of one of squared diagonals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast.models.heads import at_least_float32


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers of the tensors as one vector, in float32 at least: sums over many of them need it."""
    return torch.cat([at_least_float32(tensor.detach().reshape(-1)) for tensor in tensors])


def gradient_of(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The gradient of a loss as one vector; parameters that the loss doesn't depend on have zeros."""
    gradients = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    return flat([torch.zeros_like(p) if g is None else g for g, p in zip(gradients, parameters, strict=True)])


def gradient_and_diagonal(
    loss: Tensor, parameters: Sequence[Tensor], stream: torch.Generator, draws: int = 1
) -> tuple[Tensor, Tensor]:
    """The gradient of a loss, and Hutchinson's estimate of the diagonal of its Hessian, each as one vector.

    Args:
        loss: a scalar.
        parameters: with respect to what. No ``.grad`` is touched.
        stream: where the random signs come from.
        draws: how many estimates are averaged.

    Returns:
        Both of shape (numbers in the parameters,).
    """
    wanted = list(parameters)
    partial = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
    gradients = [torch.zeros_like(p) if g is None else g for g, p in zip(partial, wanted, strict=True)]
    diagonal = torch.zeros_like(flat(gradients))
    for draw in range(draws):
        signs = [_signs(p, stream) for p in wanted]
        product = sum((g * z).sum() for g, z in zip(gradients, signs, strict=True))
        assert isinstance(product, Tensor)
        if product.requires_grad:
            curved = torch.autograd.grad(product, wanted, retain_graph=draw + 1 < draws, allow_unused=True)
            diagonal += flat(
                [torch.zeros_like(z) if hz is None else z * hz for hz, z in zip(curved, signs, strict=True)]
            )
    return flat(gradients), diagonal / draws


def gradient_and_product(loss: Tensor, parameters: Sequence[Tensor], direction: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a loss and the product of its Hessian with a direction, exactly, each as one vector.

    Args:
        loss: a scalar.
        parameters: with respect to what. No ``.grad`` is touched.
        direction: shape (numbers in the parameters,).

    Returns:
        Both of the direction's shape.
    """
    wanted = list(parameters)
    partial = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
    gradients = [torch.zeros_like(p) if g is None else g for g, p in zip(partial, wanted, strict=True)]
    parts = torch.split(direction, [p.numel() for p in wanted])
    along = sum((g * d.view_as(p).to(p.dtype)).sum() for g, d, p in zip(gradients, parts, wanted, strict=True))
    assert isinstance(along, Tensor)
    if not along.requires_grad:
        return flat(gradients), torch.zeros_like(direction)
    curved = torch.autograd.grad(along, wanted, allow_unused=True)
    return flat(gradients), flat([torch.zeros_like(p) if h is None else h for h, p in zip(curved, wanted, strict=True)])


class Smoothed:
    """Bias-corrected exponential averages of gradients and of squared curvatures (CREST, Eq. 2.8 and 2.9).

    Args:
        beta_gradient: how much of the average of gradients stays at each step.
        beta_curvature: how much of the average of squared curvatures stays.

    Attributes:
        count: steps so far.
    """

    def __init__(self, beta_gradient: float = 0.9, beta_curvature: float = 0.999) -> None:
        self.beta_gradient = beta_gradient
        self.beta_curvature = beta_curvature
        self.count = 0
        self._gradient: Tensor | None = None
        self._square: Tensor | None = None

    def add(self, gradient: Tensor, diagonal: Tensor) -> tuple[Tensor, Tensor]:
        """Take in another gradient and diagonal.

        Returns:
            The averaged gradient and the root mean square of the diagonal.
        """
        if self._gradient is None or self._square is None:
            self._gradient, self._square = torch.zeros_like(gradient), torch.zeros_like(diagonal)
        self.count += 1
        self._gradient.mul_(self.beta_gradient).add_(gradient, alpha=1 - self.beta_gradient)
        self._square.mul_(self.beta_curvature).addcmul_(diagonal, diagonal, value=1 - self.beta_curvature)
        return (
            self._gradient / (1 - self.beta_gradient**self.count),
            (self._square / (1 - self.beta_curvature**self.count)).sqrt(),
        )

    def state_dict(self) -> dict[str, Any]:
        """The averages and the count."""
        averages = {} if self._gradient is None else {"gradient": self._gradient, "square": self._square}
        return {"count": self.count, **averages}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.count = state["count"]
        self._gradient, self._square = state.get("gradient"), state.get("square")


def _signs(like: Tensor, stream: torch.Generator) -> Tensor:
    drawn = torch.randint(2, like.shape, generator=stream, dtype=torch.int8)
    return (2 * drawn - 1).to(like.device, like.dtype)
