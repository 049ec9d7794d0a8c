"""Batch normalisation of a client that has a single example, which torch refuses to train."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class LoneExample(TorchFunctionMode):
    """While active, a batch of one value per channel is normalised by running statistics, which stay as they are.

    Its own variance is zero, and torch refuses it in training. Without running statistics the normalised value is zero.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Batch normalisation here, everything else as it is."""
        if func is F.batch_norm:
            return _normalise_one(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _normalise_one(  # noqa: PLR0917 - torch's arguments
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    lone = input.numel() == input.shape[1]
    if lone and running_mean is None:
        shape = (-1, *(1 for _ in input.shape[2:]))
        normalised = input * 0 if weight is None else input * 0 * weight.view(shape)
        return normalised if bias is None else normalised + bias.view(shape)
    return F.batch_norm(input, running_mean, running_var, weight, bias, training and not lone, momentum, eps)
