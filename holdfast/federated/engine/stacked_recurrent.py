"""Recurrent layers for many clients at once: one batched product per step of the sequence, whoever's it is.

Torch's recurrent layers have no version for many weights, and spend most of their time in small calls. Here the inputs'
part of all gates is one product for the whole sequence, a step is one batched product and a few elementwise
operations over all clients, and the backward pass is written out, so that gradients of the weights are again one
product over all steps. The equations are those of `torch.nn.RNN` and `torch.nn.GRU`. An LSTM is left to torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from holdfast.federated.engine.products import times_transposed
from holdfast.federated.engine.stacked_kernels import StackedProduct


class StackedGru(torch.autograd.Function):
    """Steps of a GRU; its gates are reset, update and new."""

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: D102
        size = start.shape[-1]
        states = inputs.new_empty(len(inputs) + 1, *start.shape)
        # Reset and update gate, new state, and what the state brings to the new one.
        gates = inputs.new_empty(*inputs.shape[:-1], 4 * size)
        states[0] = start
        transposed = weight.transpose(1, 2)
        for step, given in enumerate(inputs):
            state, now = states[step], gates[step]
            brought = torch.baddbmm(bias[:, None], state, transposed)
            both = torch.add(given[..., : 2 * size], brought[..., : 2 * size], out=now[..., : 2 * size]).sigmoid_()
            now[..., 3 * size :] = brought[..., 2 * size :]
            new = torch.addcmul(given[..., 2 * size :], both[..., :size], brought[..., 2 * size :]).tanh_()
            now[..., 2 * size : 3 * size] = new
            torch.lerp(new, state, both[..., size:], out=states[step + 1])
        return states[1:], gates, states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: D102
        _save(ctx, inputs[1], output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        weight, gates, states = ctx.saved_tensors
        size = states.shape[-1]
        for_inputs = gates.new_empty(*gates.shape[:-1], 3 * size)
        for_brought = torch.empty_like(for_inputs)
        left = torch.zeros_like(states[0])
        for step in range(len(gates) - 1, -1, -1):
            total = gradients[0][step] + left
            reset, update, new, brought = gates[step].split(size, -1)
            of_new = total * (1 - update) * (1 - new * new)
            of_update = total * (states[step] - new) * update * (1 - update)
            of_reset = of_new * brought * reset * (1 - reset)
            torch.cat([of_reset, of_update, of_new], -1, out=for_inputs[step])
            torch.cat([of_reset, of_update, of_new * reset], -1, out=for_brought[step])
            left = torch.baddbmm(total * update, for_brought[step], weight)
        return for_inputs, _of_weight(for_brought, states), for_brought.sum((0, 2)), left


class StackedRnn(torch.autograd.Function):
    """Steps of a plain recurrence, with tanh or ReLU."""

    @staticmethod
    def forward(  # noqa: D102
        inputs: Tensor, weight: Tensor, bias: Tensor, start: Tensor, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        states = inputs.new_empty(len(inputs) + 1, *start.shape)
        states[0] = start
        transposed = weight.transpose(1, 2)
        for step, given in enumerate(inputs):
            total = torch.baddbmm(bias[:, None], states[step], transposed).add_(given)
            states[step + 1] = total.relu_() if relu else total.tanh_()
        return states[1:], states.new_empty(0), states

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: D102
        _save(ctx, inputs[1], output)
        ctx.relu = inputs[4]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        weight, _, states = ctx.saved_tensors
        for_totals = torch.empty_like(states[1:])
        left = torch.zeros_like(states[0])
        for step in range(len(for_totals) - 1, -1, -1):
            state = states[step + 1]
            slope = (state > 0).to(state.dtype) if ctx.relu else 1 - state * state
            torch.mul(gradients[0][step] + left, slope, out=for_totals[step])
            left = torch.bmm(for_totals[step], weight)
        return for_totals, _of_weight(for_totals, states), for_totals.sum((0, 2)), left, None


def _save(ctx: Any, weight: Tensor, output: tuple[Tensor, ...]) -> None:
    # The last two outputs are there to be saved; nobody differentiates them.
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(weight, *output[1:])


def _of_weight(gradients: Tensor, states: Tensor) -> Tensor:
    """The weight's gradient from all steps at once: (steps, clients, batch, .) of both to (clients, gates, size)."""
    clients = gradients.shape[1]
    each = gradients.permute(1, 3, 0, 2).reshape(clients, gradients.shape[-1], -1)
    before = states[:-1].transpose(0, 1).reshape(clients, -1, states.shape[-1])
    return times_transposed(each, before.transpose(1, 2))


# -------------------------------------------------------------------------------------------------- layers


@dataclass(frozen=True)
class RecurrentShape:
    """What torch's recurrent functions are told of their layers.

    Attributes:
        kind: ``gru``, ``lstm``, ``rnn_tanh`` or ``rnn_relu``.
        layers: how many.
        biases: whether there are some.
        both: whether each layer also runs backwards.
    """

    kind: str
    layers: int
    biases: bool
    both: bool

    @property
    def directions(self) -> int:
        """Of each layer."""
        return 2 if self.both else 1


def run_recurrent(
    shape: RecurrentShape, sequence: Tensor, first: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """All layers.

    Args:
        shape: of the layers.
        sequence: shape (clients, batch, steps, features).
        first: the first states, and of an LSTM the first cells, shape (layers and directions, clients, batch, size).
        weights: as torch orders them, with a first dimension of clients.

    Returns:
        States of the last layer, shape (clients, batch, steps, size), the last states of all layers, and of an LSTM
        their last cells, in the shape of `first`.
    """
    if shape.kind == "lstm":
        return _one_after_another(shape, sequence, first, weights)
    each = len(weights) // (shape.layers * shape.directions)
    last: list[Tensor] = []
    for layer in range(shape.layers):
        sides = []
        for side in range(shape.directions):
            place = layer * shape.directions + side
            own = weights[place * each : (place + 1) * each]
            given = sequence.flip(2) if side else sequence
            states = _run_direction(shape.kind, given, first[0][place], own)
            last.append(states[:, :, -1])
            sides.append(states.flip(2) if side else states)
        sequence = torch.cat(sides, -1) if shape.both else sides[0]
    return [sequence, torch.stack(last)]


def _one_after_another(
    shape: RecurrentShape, sequence: Tensor, first: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """Torch's own layers, client after client: on CPUs its LSTM is one fused kernel, faster than stacked steps."""
    by_client = zip(*(weight.unbind(0) for weight in weights), strict=True)
    results = [
        torch.lstm(
            own, [state[:, k] for state in first], list(one), shape.biases, shape.layers, 0.0, False, shape.both, True
        )
        for k, (own, one) in enumerate(zip(sequence, by_client, strict=True))
    ]
    outputs, states, cells = zip(*results, strict=True)
    return [torch.stack(outputs), torch.stack(states, 1), torch.stack(cells, 1)]


def _run_direction(kind: str, sequence: Tensor, first: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """One layer in one direction: states of all steps, shape (clients, batch, steps, size)."""
    of_inputs, of_state, *biases = weights
    clients, batch, steps, features = sequence.shape
    flat = sequence.reshape(clients, -1, features)
    gates = cast(Any, StackedProduct).apply(flat, of_inputs, biases[0] if biases else None)
    by_step = gates.view(clients, batch, steps, -1).permute(2, 0, 1, 3).contiguous()
    bias = biases[1] if biases else of_state.new_zeros(of_state.shape[:2])
    if kind == "gru":
        states = cast(Any, StackedGru).apply(by_step, of_state, bias, first)[0]
    else:
        states = cast(Any, StackedRnn).apply(by_step, of_state, bias, first, kind == "rnn_relu")[0]
    return cast(Tensor, states.permute(1, 2, 0, 3))
