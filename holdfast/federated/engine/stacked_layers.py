"""Running a model for many clients at once: their batches as one batch, their weights as a stack.

Most of a network treats examples one by one and does not care whose they are. Only what touches weights must know:
there `Stacked` weights, which stand in for a module's parameters, answer torch's functions with a version for many
clients. `FOR_MANY` is the table of what they can do. A frozen parameter is the same for all clients and stays what it
is, so layers may have weights of both kinds.

A model that does anything else with its weights raises `CannotStackError`, and is run by vmap instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from holdfast.federated.engine.attention import HeadsCall, attend
from holdfast.federated.engine.stacked_kernels import Convolution, Pair, PoolByTwo, StackedProduct
from holdfast.federated.engine.stacked_recurrent import RecurrentShape, run_recurrent


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
        if func not in FOR_MANY:
            raise CannotStackError(f"{getattr(func, '__name__', func)} has no version for many clients")
        return FOR_MANY[func](*args, **(kwargs or {}))

    def __add__(self, other: Any) -> Tensor:
        return _elementwise(torch.add, self, other)

    def __mul__(self, other: Any) -> Tensor:
        return _elementwise(torch.mul, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return _elementwise(torch.sub, self, other)

    __radd__, __rmul__ = __add__, __mul__

    def expand(self, *sizes: Any) -> Tensor:
        """One client's weights for each of its examples: a token or a query that is learned."""
        shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        own = self.rows.shape[1:]
        clients = len(self.rows)
        if len(shape) == len(own) and own[0] == 1:
            own = own[1:]
        if len(shape) != len(own) + 1 or shape[0] % clients:
            raise CannotStackError("expand has no version for many clients")
        whole = [size if asked == -1 else asked for size, asked in zip(own, shape[1:], strict=True)]
        return self.rows.view(clients, 1, *own).expand(clients, shape[0] // clients, *whole).flatten(0, 1)


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
def placed(places: Sequence[Place], values: Sequence[Any]) -> Iterator[None]:
    """Put values in the place of parameters or buffers, for a while.

    `torch.func.functional_call` does too, but leaves a module that is used under two names with what was put there.

    Args:
        places: where they are, see `weight_places`.
        values: one for each number that places name.
    """
    before = [where[key] for where, key, _ in places]
    try:
        for where, key, number in places:
            where[key] = values[number]
        yield
    finally:
        for (where, key, _), value in zip(places, before, strict=True):
            where[key] = value


def stacked_weights(places: Sequence[Place], rows: Sequence[Tensor]) -> AbstractContextManager[None]:
    """Put stacked weights, shape (clients, *shape of the parameter) each, in the place of parameters, for a while."""
    return placed(places, [Stacked(row) for row in rows])


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


def _linear(input: Tensor | Stacked, weight: Any, bias: Any = None) -> Tensor:
    if isinstance(input, Stacked):
        raise CannotStackError("a layer whose input is a parameter has no version for many clients")
    if not isinstance(weight, Stacked):
        return _elementwise(torch.add, F.linear(input, weight), bias)
    if bias is not None and not isinstance(bias, Stacked):
        return torch.add(_linear(input, weight), bias)
    rows = weight.rows
    by_client = input.reshape(len(rows), -1, input.shape[-1])
    product = cast(Tensor, cast(Any, StackedProduct).apply(by_client, rows, None if bias is None else bias.rows))
    return product.view(*input.shape[:-1], -1)


def _elementwise(func: Callable[..., Tensor], one: Any, other: Any, **options: Any) -> Tensor:
    """A function of a parameter and activations, whose last dimensions go together as torch broadcasts them."""
    if options or (isinstance(one, Stacked) and isinstance(other, Stacked)):
        raise CannotStackError(f"{func.__name__} of parameters has no version for many clients")
    stacked, activations = (one, other) if isinstance(one, Stacked) else (other, one)
    if not isinstance(activations, Tensor):
        raise CannotStackError("arithmetic with a parameter alone has no version for many clients")
    clients, own = len(stacked.rows), stacked.rows.shape[1:]
    if len(own) == activations.ndim and own[0] == 1:
        own = own[1:]
    if len(own) >= activations.ndim or activations.shape[0] % clients:
        raise CannotStackError("a parameter with a number per example has no version for many clients")
    apart = activations.view(clients, -1, *activations.shape[1:])
    rows = stacked.rows.reshape(clients, 1, *(1 for _ in range(activations.ndim - 1 - len(own))), *own)
    result = func(rows, apart) if stacked is one else func(apart, rows)
    return result.flatten(0, 1)


def _embedding(  # noqa: PLR0917 - torch's arguments
    input: Tensor,
    weight: Stacked,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """One table of all clients' words, in which each client's begin at its own place."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise CannotStackError("an embedding with a largest norm, scaled or sparse has no version for many clients")
    clients, words, _ = weight.rows.shape
    firsts = words * torch.arange(clients, device=input.device)
    apart = input.reshape(clients, -1) + firsts[:, None]
    rows = weight.rows
    if padding_idx is not None:
        # The padding's word is read and never learned.
        learned = torch.ones(words, 1, dtype=rows.dtype, device=rows.device)
        learned[padding_idx] = 0
        rows = rows * learned + (rows * (1 - learned)).detach()
    return F.embedding(apart, rows.flatten(0, 1)).view(*input.shape, -1)


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    normalised = F.layer_norm(input, normalized_shape, None, None, eps)
    return _shifted(normalised, weight, bias)


def _group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    normalised = F.group_norm(input, num_groups, None, None, eps)
    return _shifted(normalised.transpose(1, -1), weight, bias).transpose(1, -1)


def _batch_norm(  # noqa: PLR0917 - torch's arguments
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """By running statistics that are frozen, and so the same for all clients."""
    if training or running_mean is None:
        raise CannotStackError("normalisation by a batch has no version for joined batches")
    normalised = F.batch_norm(input, running_mean, running_var, None, None, False, momentum, eps)
    return _shifted(normalised.transpose(1, -1), weight, bias).transpose(1, -1)


def _shifted(values: Tensor, weight: Any, bias: Any) -> Tensor:
    """Times a weight, plus a bias, each of them stacked or not."""
    if weight is not None:
        values = _elementwise(torch.mul, values, weight) if isinstance(weight, Stacked) else values * weight
    if bias is None:
        return values
    return _elementwise(torch.add, values, bias) if isinstance(bias, Stacked) else values + bias


def _heads(*args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
    call = HeadsCall.of(*args, **options)
    if call.unusual or (call.training and call.dropout_p):  # dropped by name, see `holdfast.federated.engine.draws`
        raise CannotStackError("this attention has no version for many clients")
    return attend(call, lambda weights: weights)


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
    return cast(Tensor, cast(Any, PoolByTwo).apply(input)[0])


def _gru_cell(input: Tensor, state: Tensor, of_input: Any, of_state: Any, *biases: Any) -> Tensor:
    given, brought = _gates(input, state, of_input, of_state, *biases)
    (reset, update, new), (to_reset, to_update, to_new) = given.chunk(3, -1), brought.chunk(3, -1)
    new = (new + (reset + to_reset).sigmoid() * to_new).tanh()
    return torch.lerp(new, state, (update + to_update).sigmoid())


def _lstm_cell(
    input: Tensor, first: Sequence[Tensor], of_input: Any, of_state: Any, *biases: Any
) -> tuple[Tensor, Tensor]:
    let, forget, new, out = torch.add(*_gates(input, first[0], of_input, of_state, *biases)).chunk(4, -1)
    cell = forget.sigmoid() * first[1] + let.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _rnn_cell(bend: Callable[[Tensor], Tensor], *args: Any) -> Tensor:
    return bend(torch.add(*_gates(*args)))


def _gates(  # noqa: PLR0917
    input: Tensor, state: Tensor, of_input: Any, of_state: Any, input_bias: Any = None, state_bias: Any = None
) -> tuple[Tensor, Tensor]:
    if not isinstance(of_input, Stacked) or not isinstance(of_state, Stacked):
        raise CannotStackError("a cell of which a part is frozen has no version for many clients")
    return _linear(input, of_input, input_bias), _linear(state, of_state, state_bias)


def _recurrent(  # noqa: PLR0917 - torch's arguments
    kind: str,
    input: Tensor,
    first: Any,
    weights: Sequence[Any],
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, ...]:
    if not isinstance(weights, list | tuple) or not all(isinstance(weight, Stacked) for weight in weights):
        raise CannotStackError(
            "packed sequences, and layers of which a part is frozen, have no version for many clients"
        )
    if train and dropout and num_layers > 1:  # dropped by name, see `holdfast.federated.engine.draws`
        raise CannotStackError("this recurrent layer has no version for many clients")
    shape = RecurrentShape(kind, num_layers, has_biases, bidirectional)
    start = list(first) if kind == "lstm" else [first]
    rows = [weight.rows for weight in weights]
    clients = len(rows[0])
    sequence = input if batch_first else input.transpose(0, 1)
    apart = sequence.view(clients, -1, *sequence.shape[1:])
    states = [state.view(len(state), clients, -1, state.shape[-1]) for state in start]
    outputs, *last = run_recurrent(shape, apart, states, rows)
    joined = outputs.flatten(0, 1)
    return (joined if batch_first else joined.transpose(0, 1), *(state.flatten(1, 2) for state in last))


#: What is done instead where a weight is stacked.
FOR_MANY: dict[Callable[..., Any], Callable[..., Any]] = {
    F.linear: _linear,
    F.conv2d: _conv2d,
    Tensor.to: lambda input, like: input.to(like.rows),
    F.embedding: _embedding,
    F.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    F.batch_norm: _batch_norm,
    F.multi_head_attention_forward: _heads,
    torch.gru_cell: _gru_cell,
    torch.lstm_cell: _lstm_cell,
    torch.rnn_tanh_cell: partial(_rnn_cell, torch.tanh),
    torch.rnn_relu_cell: partial(_rnn_cell, torch.relu),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__), partial(_elementwise, torch.add)),
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__), partial(_elementwise, torch.mul)),
    **dict.fromkeys((torch.sub, Tensor.sub, Tensor.__sub__), partial(_elementwise, torch.sub)),
    **{getattr(torch, kind): partial(_recurrent, kind) for kind in ("gru", "lstm", "rnn_tanh", "rnn_relu")},
}


def _pair(size: int | Pair | Any) -> Pair:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
