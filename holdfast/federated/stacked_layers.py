"""Layers that run for many clients at once: convolution, pooling, and dropout with given masks.

Under vmap a convolution whose weights differ by client becomes a grouped convolution, and pooling goes through a kernel
made for large images. On CPUs both are slow for small networks. `StackedOps` puts others in their place while a model
runs stacked: convolution as one batched matrix product with the input's patches, pooling as comparisons of strided
slices. Dropout draws from a global generator; with the mask given from outside, what a client drops depends on its own
stream only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]


class GivenDropout(nn.Module):
    """Dropout whose scales are given: `mask` holds 0 or 1/(1-p) for each entry of the input.

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


def give_masks(model: nn.Module) -> nn.Module:
    """Replace dropout layers by such whose mask is given, in place.

    Args:
        model: the module to change.

    Returns:
        The module.
    """
    for name, child in model.named_children():
        if isinstance(child, nn.Dropout | nn.Dropout2d):
            setattr(model, name, GivenDropout(child.p))
        else:
            give_masks(child)
    return model


class StackedOps(TorchFunctionMode):
    """While active, plain 2d convolutions and non-overlapping max pooling use the implementations below."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        if func is torch.conv2d:
            convolved = _convolve(*args, **options)
            if convolved is not None:
                return convolved
        if func in (torch.max_pool2d, F.max_pool2d):
            pooled = _pool(*args, **options)
            if pooled is not None:
                return pooled
        return func(*args, **options)


def _convolve(  # noqa: PLR0917 - torch.conv2d's arguments
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor | None:
    inputs, kernel = input, (weight.shape[-2], weight.shape[-1])
    if padding == "same" and kernel[0] % 2 and kernel[1] % 2:
        padding = (kernel[0] // 2, kernel[1] // 2)
    if groups != 1 or _pair(dilation) != (1, 1) or (isinstance(padding, str) and padding != "valid"):
        return None
    around = (0, 0) if isinstance(padding, str) else _pair(padding)
    if around != (0, 0):
        inputs = F.pad(inputs, (around[1], around[1], around[0], around[0]))
    convolved = _apply(Convolution, inputs, weight, _pair(stride))[0]
    return cast(Tensor, convolved if bias is None else convolved + bias[:, None, None])


def _pool(  # noqa: PLR0917 - torch.max_pool2d's arguments
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    inputs, plain = input, _pair(padding) == (0, 0) and _pair(dilation) == (1, 1) and not return_indices
    if not plain or _pair(kernel_size) != (2, 2) or (stride and _pair(stride) != (2, 2)):
        return None
    odd = (inputs.shape[-2] % 2, inputs.shape[-1] % 2)
    if ceil_mode and any(odd):
        inputs = F.pad(inputs, (0, odd[1], 0, odd[0]), value=-torch.inf)
    elif any(odd):
        inputs = inputs[..., : inputs.shape[-2] - odd[0], : inputs.shape[-1] - odd[1]]
    return cast(Tensor, _apply(PoolByTwo, inputs))


class Convolution(torch.autograd.Function):
    """Convolution of (n, c, H, W) with (o, c, kh, kw), or of stacks of both, without padding.

    Patches are copied from strided views, which is several times faster than `torch.nn.functional.unfold`.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, stride: Pair) -> tuple[Tensor, Tensor]:  # noqa: D102
        stacked = weight if weight.ndim == 5 else weight[None]
        images = inputs if weight.ndim == 5 else inputs[None]
        clients, batch, channels, _, _ = images.shape
        out, (kh, kw) = stacked.shape[1], stacked.shape[-2:]
        windows = images.unfold(3, kh, stride[0]).unfold(4, kw, stride[1])
        height, width = windows.shape[3:5]
        patches = windows.permute(0, 1, 2, 5, 6, 3, 4).reshape(clients * batch, channels * kh * kw, height * width)
        flat = _per_example(stacked.reshape(clients, out, -1), batch)
        convolved = torch.bmm(flat, patches).view(*inputs.shape[:-3], out, height, width)
        return convolved, patches

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: D102
        images, weight, stride = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, output[1])
        ctx.shape, ctx.stride = images.shape, stride

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: D102
        weight, patches = ctx.saved_tensors
        stacked = weight if weight.ndim == 5 else weight[None]
        clients, out = stacked.shape[:2]
        examples, _, places = patches.shape
        gradient = gradients[0].reshape(examples, out, places)
        by_example = torch.bmm(gradient, patches.transpose(1, 2))
        for_weight = by_example.view(clients, examples // clients, *stacked.shape[1:]).sum(1).view(weight.shape)
        if not ctx.needs_input_grad[0]:
            return None, for_weight, None
        flat = _per_example(stacked.reshape(clients, out, -1), examples // clients)
        for_patches = torch.bmm(flat.transpose(1, 2), gradient)
        return _fold(for_patches, ctx.shape, stacked.shape[-2:], ctx.stride), for_weight, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], inputs: Tensor, weight: Tensor, stride: Pair) -> Any:  # noqa: D102
        images = _first(inputs, in_dims[0], info.batch_size)
        return _apply(Convolution, images, _first(weight, in_dims[1], info.batch_size), stride), (0, 0)


class PoolByTwo(torch.autograd.Function):
    """The maximum of each 2 x 2 block; of equal entries the first gets the gradient, as in torch."""

    @staticmethod
    def forward(inputs: Tensor) -> Tensor:  # noqa: D102
        a, b, c, d = _corners(inputs)
        return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: D102
        inputs, output = ctx.saved_tensors
        result = torch.empty_like(inputs)
        left = gradients[0]
        for place, corner in zip(_corners(result), _corners(inputs), strict=True):
            taken = left * (corner == output)
            place.copy_(taken)
            left = left - taken
        return result

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], inputs: Tensor) -> Any:  # noqa: D102
        return _apply(PoolByTwo, _first(inputs, in_dims[0], info.batch_size)), 0


def _apply(function: Any, *arguments: Any) -> Any:
    """`Function.apply`, which torch leaves untyped."""
    return function.apply(*arguments)


def _corners(images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    top, bottom = images[..., ::2, :], images[..., 1::2, :]
    return top[..., ::2], top[..., 1::2], bottom[..., ::2], bottom[..., 1::2]


def _fold(patches: Tensor, shape: torch.Size, kernel: torch.Size, stride: Pair) -> Tensor:
    """Add patches up where they came from: one strided addition per entry of the kernel."""
    images = patches.new_zeros(shape)
    height, width = ((size - k) // s + 1 for size, k, s in zip(shape[-2:], kernel, stride, strict=True))
    taps = patches.view(*shape[:-2], *kernel, height, width)
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            rows, columns = slice(y, y + height * stride[0], stride[0]), slice(x, x + width * stride[1], stride[1])
            images[..., rows, columns].add_(taps[..., y, x, :, :])
    return images


def _per_example(weight: Tensor, batch: int) -> Tensor:
    """Weights (clients, o, f) once per example, (clients * batch, o, f)."""
    return weight[:, None].expand(-1, batch, -1, -1).reshape(-1, *weight.shape[1:])


def _first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _pair(size: int | Pair | Any) -> Pair:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
