"""Running a model for many clients at once: their batches as one batch, their weights as a stack.

Most of a network treats examples one by one and does not care whose they are. Only what touches weights must know:
there `Stacked` weights, which stand in for a module's parameters, answer torch's functions with a version for many
clients. Convolution is one batched matrix product with the input's patches; vmap would make it a grouped convolution,
which CPUs run badly. Pooling compares strided slices, several times faster than torch's kernel on small images.

A model that does anything else with its weights raises `CannotStackError`, and is run by vmap instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]


class CannotStackError(Exception):
    """A model uses its weights in a way that has no version for many clients here."""


class Stacked:
    """Weights of many clients in place of a module's parameter.

    Args:
        rows: shape (clients, *shape of the parameter).
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    # What layers ask of a parameter before they use it.
    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers."""
        return self.rows.dtype

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.rows.device

    @property
    def shape(self) -> torch.Size:
        """Of one client's weights."""
        return self.rows.shape[1:]

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are taken."""
        return self.rows.requires_grad

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Torch's functions for many clients, where there is a version."""
        # Torch calls this in place of any of its functions that is given a `Stacked` for a tensor: that is how a
        # module's own `forward` runs unchanged. Whatever is not in the table is refused rather than guessed.
        if func not in _FOR_MANY:
            raise CannotStackError(getattr(func, "__name__", str(func)))
        return _FOR_MANY[func](*args, **(kwargs or {}))


#: A container of a module's parameters, a key in it, and which of the parameters is there.
Place = tuple[Any, Any, int]


def weight_places(module: nn.Module, parameters: Sequence[nn.Parameter]) -> list[Place]:
    """Every place where a module keeps one of these parameters; one that is used twice has two."""
    # Torch keeps the parameters of a module in the plain dictionary `_parameters`, and recurrent layers once more in a
    # list. Stacked weights are put there, since assigning to the attribute accepts nothing but an `nn.Parameter`.
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    places: list[Place] = []
    for owner in module.modules():
        entries: list[tuple[Any, Any, Any]] = [
            (owner._parameters, name, own) for name, own in owner._parameters.items()
        ]
        flat = getattr(owner, "_flat_weights", None)
        if isinstance(owner, nn.RNNBase) and isinstance(flat, list):
            entries += [(flat, place, own) for place, own in enumerate(flat)]
        places += [(where, key, numbers[id(own)]) for where, key, own in entries if id(own) in numbers]
    return places


@contextmanager
def stacked_weights(places: Sequence[Place], rows: Sequence[Tensor]) -> Iterator[None]:
    """Put stacked weights in the place of parameters, for a while.

    Args:
        places: where parameters are, see `weight_places`.
        rows: the weights of each, shape (clients, *shape of the parameter).
    """
    before = [where[key] for where, key, _ in places]
    stacked = [Stacked(row) for row in rows]
    try:
        for where, key, number in places:
            where[key] = stacked[number]
        yield
    finally:
        for (where, key, _), parameter in zip(places, before, strict=True):
            where[key] = parameter


class FastPooling(TorchFunctionMode):
    """While active, non-overlapping 2 x 2 max pooling is `PoolByTwo`: the same to the bit, faster on small images."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pooling here, everything else as it is."""
        # A mode sees every call of torch's functions in its block, also those on plain tensors.
        options = kwargs or {}
        if func is F.max_pool2d or func is torch.max_pool2d:
            pooled = _pool(*args, **options)
            if pooled is not None:
                return pooled
        return func(*args, **options)


# -------------------------------------------------------------------------------------------------- functions


def _linear(input: Tensor, weight: Stacked, bias: Stacked | None = None) -> Tensor:
    if not isinstance(weight, Stacked):
        raise CannotStackError("linear")
    rows = weight.rows
    by_client = input.reshape(len(rows), -1, input.shape[-1])
    product = cast(Tensor, cast(Any, StackedProduct).apply(by_client, rows, None if bias is None else bias.rows))
    return product.view(*input.shape[:-1], -1)


def _conv2d(  # noqa: PLR0917 - torch.conv2d's arguments
    input: Tensor,
    weight: Stacked,
    bias: Stacked | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    rows = weight.rows
    kernel = (rows.shape[-2], rows.shape[-1])
    if padding == "valid":
        padding = 0
    if padding == "same" and kernel[0] % 2 and kernel[1] % 2:
        padding = (kernel[0] // 2, kernel[1] // 2)
    if groups != 1 or _pair(dilation) != (1, 1) or isinstance(padding, str) or input.ndim != 4:
        raise CannotStackError("conv2d")
    around = _pair(padding)
    if around != (0, 0):
        input = F.pad(input, (around[1], around[1], around[0], around[0]))
    shift = None if bias is None else bias.rows
    return cast(Tensor, cast(Any, Convolution).apply(input, rows, shift, _pair(stride))[0])


def _pool(  # noqa: PLR0917 - torch.max_pool2d's arguments
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    by_two = _pair(kernel_size) == (2, 2) and (not stride or _pair(stride) == (2, 2))
    if not by_two or _pair(padding) != (0, 0) or _pair(dilation) != (1, 1) or return_indices:
        return None
    odd = (input.shape[-2] % 2, input.shape[-1] % 2)
    if ceil_mode and any(odd):
        input = F.pad(input, (0, odd[1], 0, odd[0]), value=-torch.inf)
    elif any(odd):
        input = input[..., : input.shape[-2] - odd[0], : input.shape[-1] - odd[1]]
    return cast(Tensor, cast(Any, PoolByTwo).apply(input))


#: What is done instead where a weight is stacked.
_FOR_MANY: dict[Callable[..., Any], Callable[..., Tensor]] = {F.linear: _linear, F.conv2d: _conv2d}


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


def _pair(size: int | Pair | Any) -> Pair:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
