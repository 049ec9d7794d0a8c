"""Steps that pull parameters towards an anchor, on rows and on views of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: How strongly, and towards what, parameters are pulled: the gradient gets ``strength * (parameters - anchor)``.
ProximalTerm = tuple[float, Tensor]


def add_proximal(gradient: Tensor, models: Tensor, proximal: ProximalTerm | None, trainable: int) -> Tensor:
    """``g + strength (v - anchor)``, for parameters only; `gradient` itself where there is none.

    At strength 0 the anchor is not looked at, so it may be infinite: 0 times infinity is no number.

    Args:
        gradient: of the loss, shape (clients, P); never changed.
        models: v, shape (clients, P).
        proximal: strength and anchor, shape (P,) or (clients, P).
        trainable: how many numbers of a row are parameters; running statistics behind them are not pulled.
    """
    if proximal is None or not proximal[0]:
        return gradient
    distance = models - proximal[1]
    distance[:, trainable:] = 0
    return torch.add(gradient, distance, alpha=proximal[0], out=distance)


def proximal_of_one(proximal: ProximalTerm | None, place: int) -> ProximalTerm | None:
    """The proximal term of the client at that place alone."""
    if proximal is None or proximal[1].ndim == 1:
        return proximal
    return proximal[0], proximal[1][place]


@torch.no_grad()
def step_on_parts(
    parts: tuple[Tensor, ...],
    gradients: tuple[Tensor, ...],
    rate: float,
    proximal: ProximalTerm | None,
    anchors: Sequence[Tensor],
) -> None:
    """A step on views of rows, parameter by parameter: flattening the gradient first would cost a quarter."""
    # These private functions of torch are what its own optimizers call with ``foreach=True``; they are one kernel for
    # all parameters, where a loop over a small model would spend its time in calls.
    if proximal is not None:
        # Not in place: where a model adds two parameters up, both have the same gradient in the same memory.
        distances = torch._foreach_sub(parts, tuple(anchors[: len(parts)]))
        gradients = tuple(torch._foreach_add(gradients, distances, alpha=proximal[0]))
    torch._foreach_sub_(parts, gradients, alpha=rate)
