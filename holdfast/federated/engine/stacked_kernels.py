"""Products, convolutions and pooling for many clients at once, with their backward passes written out.

Convolution is one batched matrix product with the input's patches; vmap would make it a grouped convolution, which CPUs
run badly. Pooling compares strided slices, several times faster than torch's search for maxima in small images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from holdfast.federated.engine.products import times_transposed

Pair = tuple[int, int]

#: Outputs in a row up to which a copy of patches is slower than turning the images first (measured from 6 to 32).
_SHORT_ROW = 16


class StackedProduct(torch.autograd.Function):
    """Inputs (clients, n, f) times weights (clients, o, f) transposed, plus biases (clients, o).

    The gradient of the weights comes in their own order; torch's is transposed, and copying it costs more than it.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: D102
        return times_transposed(inputs, weight, None if bias is None else bias[:, None])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.shifted = inputs[2] is not None

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        inputs, weight = ctx.saved_tensors
        gradient = gradients[0]
        for_inputs = times_transposed(gradient, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        for_bias = gradient.sum(1) if ctx.shifted else None
        return for_inputs, times_transposed(gradient.transpose(1, 2), inputs.transpose(1, 2)), for_bias


class Convolution(torch.autograd.Function):
    """Convolution of images (clients * batch, c, H, W) with weights (clients, o, c, kh, kw) and biases (clients, o).

    Patches are copied from strided views, which is several times faster than `torch.nn.functional.unfold`, and as fast
    as the runs of memory that they are copied in are long. Where a row of the output is short, images are therefore
    turned first so that the examples of a client lie side by side (see `_turned`), and a client's are one product.
    """

    @staticmethod
    def forward(  # noqa: D102
        images: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair
    ) -> tuple[Tensor, Tensor]:
        kh, kw = weight.shape[-2:]
        across = (images.shape[3] - kw) // stride[1] + 1
        batch = len(images) // len(weight)
        # Products per client: one of all its examples, or one of each.
        products = 1 if across <= _SHORT_ROW else batch
        turned = _turned(images, products * len(weight))
        # `unfold` of a tensor makes views without a copy: (products, channels, down, across, examples, kh, kw).
        windows = turned.unfold(2, kh, stride[0]).unfold(3, kw, stride[1])
        down = windows.shape[2]
        patches = windows.permute(0, 1, 5, 6, 2, 3, 4).reshape(len(windows), weight[0, 0].numel(), -1)
        flat = _repeated(weight.flatten(2), products)
        shift = None if bias is None else _repeated(bias[:, :, None], products)
        convolved = times_transposed(flat, patches.transpose(1, 2), shift)
        return _turned_back(convolved, (len(images), weight.shape[1], down, across)), patches

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
        products = len(patches) // clients
        gradient = _turned(gradients[0], len(patches)).reshape(len(patches), out, -1)
        by_product = times_transposed(gradient, patches)
        for_weight = by_product.view(clients, products, *weight.shape[1:]).sum(1)
        for_bias = gradient.sum(2).view(clients, products, out).sum(1) if ctx.shifted else None
        if not ctx.needs_input_grad[0]:
            return None, for_weight, for_bias, None
        flat = _repeated(weight.flatten(2), products)
        for_patches = times_transposed(flat.transpose(1, 2), gradient.transpose(1, 2))
        return _fold(for_patches, ctx.shape, weight.shape[-2:], ctx.stride), for_weight, for_bias, None


class PoolByTwo(torch.autograd.Function):
    """The maximum of each 2 x 2 block; of equal entries the first gets the gradient, as in torch.

    The backward pass is torch's own, by the positions of the maxima. It is only the search for them that is slow there.
    """

    @staticmethod
    def forward(images: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        width = images.shape[-1]
        a, b, c, d = _corners(images)
        top, bottom = torch.maximum(a, b), torch.maximum(c, d)
        down = bottom > top
        right_above, right_below = b > a, d > c
        # As `where` would choose, which is many times slower on such numbers.
        right = right_above ^ ((right_above ^ right_below) & down)
        positions = down.long().mul_(width).add_(right.long()).add_(_corner_positions(images))
        return torch.maximum(top, bottom), positions

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: D102
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: D102
        images, positions = ctx.saved_tensors
        by_two = ((2, 2), (2, 2), (0, 0), (1, 1))  # kernel, stride, padding, dilation
        scatter = torch.ops.aten.max_pool2d_with_indices_backward
        return cast(Tensor, scatter(gradients[0], images, *by_two, ceil_mode=False, indices=positions))


def _corners(images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    top, bottom = images[..., ::2, :], images[..., 1::2, :]
    return top[..., ::2], top[..., 1::2], bottom[..., ::2], bottom[..., 1::2]


def _corner_positions(images: Tensor) -> Tensor:
    """Where in its image the first corner of each block is, (H / 2, W / 2)."""
    height, width = images.shape[-2:]
    rows = torch.arange(0, height * width, 2 * width, device=images.device)
    return rows[:, None] + torch.arange(0, width, 2, device=images.device)


def _turned(images: Tensor, products: int) -> Tensor:
    """Images (examples, c, H, W) as (products, c, H, W, examples of a product); a view where each has one example."""
    apart = images.reshape(products, -1, images[0].numel())
    return apart.transpose(1, 2).contiguous().view(products, *images.shape[1:], apart.shape[1])


def _turned_back(turned: Tensor, shape: Sequence[int]) -> Tensor:
    """Back from (products, ...) in that order to images of this shape."""
    per_product = shape[0] // len(turned)
    return turned.reshape(len(turned), -1, per_product).transpose(1, 2).reshape(shape)


def _fold(patches: Tensor, shape: torch.Size, kernel: torch.Size, stride: Pair) -> Tensor:
    """Add patches up where they came from: first the rows of each column of the kernel, then the columns."""
    (channels, height, width), (kh, kw) = shape[1:], kernel
    down, across = (height - kh) // stride[0] + 1, (width - kw) // stride[1] + 1
    taps = patches.view(len(patches), channels, kh, kw, down, across, -1)
    columns = patches.new_zeros(len(patches), channels, kw, height, *taps.shape[-2:])
    for y in range(kh):
        columns[:, :, :, y : y + down * stride[0] : stride[0]].add_(taps[:, :, y])
    turned = patches.new_zeros(len(patches), channels, height, width, taps.shape[-1])
    for x in range(kw):
        turned[:, :, :, x : x + across * stride[1] : stride[1]].add_(columns[:, :, x])
    return _turned_back(turned, shape)


def _repeated(weight: Tensor, times: int) -> Tensor:
    """Weights (clients, o, f) so many times over for each client, (clients * times, o, f)."""
    if times == 1:
        return weight
    return weight[:, None].expand(-1, times, -1, -1).reshape(-1, *weight.shape[1:])
