"""Products, convolutions and pooling for many clients at once, with their backward passes written out.

Convolution is one batched matrix product with the input's patches; vmap would make it a grouped convolution, which CPUs
run badly. Pooling compares strided slices, several times faster than torch's kernel on small images.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Pair = tuple[int, int]


class StackedProduct(torch.autograd.Function):
    """Inputs (clients, n, f) times weights (clients, o, f) transposed, plus biases (clients, o).

    The gradient of the weights comes in their own order; torch's is transposed, and copying it costs more than it.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: D102
        if bias is None:
            return torch.bmm(inputs, weight.transpose(1, 2))
        return torch.baddbmm(bias[:, None], inputs, weight.transpose(1, 2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.shifted = inputs[2] is not None

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        inputs, weight = ctx.saved_tensors
        gradient = gradients[0]
        for_inputs = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        for_bias = gradient.sum(1) if ctx.shifted else None
        return for_inputs, torch.bmm(gradient.transpose(1, 2), inputs), for_bias


class Convolution(torch.autograd.Function):
    """Convolution of images (clients * batch, c, H, W) with weights (clients, o, c, kh, kw) and biases (clients, o).

    Patches are copied from strided views, which is several times faster than `torch.nn.functional.unfold`.
    """

    @staticmethod
    def forward(  # noqa: D102
        images: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair
    ) -> tuple[Tensor, Tensor]:
        examples, channels, _, _ = images.shape
        clients, out = weight.shape[:2]
        kh, kw = weight.shape[-2:]
        # `unfold` of a tensor makes views without a copy: (examples, channels, down, across, kh, kw).
        windows = images.unfold(2, kh, stride[0]).unfold(3, kw, stride[1])
        height, width = windows.shape[2:4]
        patches = windows.permute(0, 1, 4, 5, 2, 3).reshape(examples, channels * kh * kw, height * width)
        flat = _per_example(weight.reshape(clients, out, -1), examples // clients)
        if bias is None:
            convolved = torch.bmm(flat, patches)
        else:
            convolved = torch.baddbmm(_per_example(bias[:, :, None], examples // clients), flat, patches)
        return convolved.view(examples, out, height, width), patches

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: D102
        images, weight, bias, stride = inputs
        # Patches are an output so that they can be saved for the backward pass; nobody differentiates them, and without
        # the second call torch would make a tensor of zeros for their gradient.
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, output[1])
        ctx.shape, ctx.stride, ctx.shifted = images.shape, stride, bias is not None

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        weight, patches = ctx.saved_tensors
        clients, out = weight.shape[:2]
        examples, _, places = patches.shape
        gradient = gradients[0].reshape(examples, out, places)
        by_example = torch.bmm(gradient, patches.transpose(1, 2))
        for_weight = by_example.view(clients, -1, *weight.shape[1:]).sum(1)
        for_bias = gradient.sum(2).view(clients, -1, out).sum(1) if ctx.shifted else None
        if not ctx.needs_input_grad[0]:
            return None, for_weight, for_bias, None
        flat = _per_example(weight.reshape(clients, out, -1), examples // clients)
        for_patches = torch.bmm(flat.transpose(1, 2), gradient)
        return _fold(for_patches, ctx.shape, weight.shape[-2:], ctx.stride), for_weight, for_bias, None


class PoolByTwo(torch.autograd.Function):
    """The maximum of each 2 x 2 block; of equal entries the first gets the gradient, as in torch."""

    @staticmethod
    def forward(images: Tensor) -> Tensor:  # noqa: D102
        a, b, c, d = _corners(images)
        return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: D102
        images, output = ctx.saved_tensors
        result = torch.empty_like(images)
        left = gradients[0]
        *others, last = zip(_corners(result), _corners(images), strict=True)
        # Each corner that equals the maximum takes what is left of the gradient, so of equal ones only the first has
        # it.
        for place, corner in others:
            torch.mul(left, corner == output, out=place)
            left = left - place
        last[0].copy_(left)
        return result


def _corners(images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    top, bottom = images[..., ::2, :], images[..., 1::2, :]
    return top[..., ::2], top[..., 1::2], bottom[..., ::2], bottom[..., 1::2]


def _fold(patches: Tensor, shape: torch.Size, kernel: torch.Size, stride: Pair) -> Tensor:
    """Add patches up where they came from: first the rows of each column of the kernel, then the columns."""
    (height, width), (kh, kw) = shape[-2:], kernel
    down, across = (height - kh) // stride[0] + 1, (width - kw) // stride[1] + 1
    taps = patches.view(*shape[:-2], kh, kw, down, across)
    columns = patches.new_zeros(*shape[:-2], kw, height, across)
    for y in range(kh):
        columns[..., y : y + down * stride[0] : stride[0], :].add_(taps[..., y, :, :, :])
    images = patches.new_zeros(shape)
    for x in range(kw):
        images[..., x : x + across * stride[1] : stride[1]].add_(columns[..., x, :, :])
    return images


def _per_example(weight: Tensor, batch: int) -> Tensor:
    """Weights (clients, o, f) once per example, (clients * batch, o, f)."""
    return weight[:, None].expand(-1, batch, -1, -1).reshape(-1, *weight.shape[1:])
