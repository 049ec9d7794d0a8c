"""Layers that run for many clients at once: convolutions as matrix products, dropout with given masks.

Under vmap a convolution whose weights differ by client becomes a grouped convolution, which CPUs run badly. Unfolded
into patches it is one batched matrix product. Dropout draws from a global generator; with the mask given from outside,
what a client drops depends on its own stream only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GivenDropout(nn.Module):
    """Dropout whose scales are given: `mask` holds 0 or 1/(1-p), broadcast over what is missing.

    Args:
        p: the probability to drop.
    """

    mask: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("mask", torch.ones(()), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scaled inputs; as they are where no mask is given."""
        return inputs if self.mask.ndim == 0 else inputs * self.mask


class UnfoldedConv2d(nn.Conv2d):
    """A convolution as a product of its weight matrix with the input's patches."""

    def forward(self, input: Tensor) -> Tensor:
        """The same as `torch.nn.Conv2d` gives."""
        stride, kernel = _pair(self.stride), _pair(self.kernel_size)
        padding = (kernel[0] // 2, kernel[1] // 2) if self.padding == "same" else _pair(self.padding)
        patches = F.unfold(input, kernel, padding=padding, stride=stride)
        flat = torch.einsum("of,nfl->nol", self.weight.flatten(1), patches)
        if self.bias is not None:
            flat = flat + self.bias[:, None]
        height = (input.shape[-2] + 2 * padding[0] - kernel[0]) // stride[0] + 1
        return flat.reshape(*flat.shape[:-1], height, -1)


def for_stacking(model: nn.Module, *, convolutions: bool) -> nn.Module:
    """Replace dropout layers, and convolutions where asked, in place; parameters keep their names and order.

    Args:
        model: the module to change.
        convolutions: whether plain convolutions are unfolded too.

    Returns:
        The module.
    """
    for name, child in model.named_children():
        if isinstance(child, nn.Dropout | nn.Dropout2d):
            setattr(model, name, GivenDropout(child.p))
        elif convolutions and isinstance(child, nn.Conv2d) and _plain(child):
            unfolded = UnfoldedConv2d.__new__(UnfoldedConv2d)
            unfolded.__dict__ = child.__dict__
            setattr(model, name, unfolded)
        else:
            for_stacking(child, convolutions=convolutions)
    return model


def _plain(layer: nn.Conv2d) -> bool:
    symmetric = layer.padding != "same" or all(size % 2 for size in layer.kernel_size)
    return symmetric and layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"


def _pair(size: str | int | tuple[int, ...]) -> tuple[int, int]:
    assert not isinstance(size, str)
    return (size, size) if isinstance(size, int) else (size[0], size[1])
