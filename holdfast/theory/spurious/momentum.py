"""Momentum as PDE writes it and as frameworks run it, full-batch descent on the patch model, and what a buffer holds.

The paper's update keeps an exponential average of gradients, ``g <- gamma g + (1 - gamma) grad`` (PDE, Eq. 3.1);
frameworks keep a heavy ball, ``b <- gamma b + grad``. From zero buffers both give the same trajectory if and only if
the heavy ball's learning rate is (1 - gamma) times the paper's, so the "0.03 with momentum 0.9" of the runs is 0.3 in
the theory. At the end of a balanced warm-up the buffer points along the core feature, which is why PDE keeps it when
the set grows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.theory.spurious.cubic import Filters, Gradient, PatchSample, gradient


def heavy_ball_rate(rate: float, momentum: float) -> float:
    """The learning rate with which a heavy ball follows the paper's update at `rate`.

    Example:
        >>> round(heavy_ball_rate(0.3, 0.9), 12)
        0.03
    """
    return rate * (1 - momentum)


def average_step(
    parameters: Tensor, buffer: Tensor, gradient: Tensor, rate: float, momentum: float
) -> tuple[Tensor, Tensor]:
    """One step of the paper's update.

    Args:
        parameters: of any shape.
        buffer: the average so far, of the same shape; zeros at the start.
        gradient: at `parameters`.
        rate: learning rate, eta.
        momentum: gamma.

    Returns:
        Parameters and buffer after the step.
    """
    buffer = momentum * buffer + (1 - momentum) * gradient
    return parameters - rate * buffer, buffer


def heavy_ball_step(
    parameters: Tensor, buffer: Tensor, gradient: Tensor, rate: float, momentum: float
) -> tuple[Tensor, Tensor]:
    """One step of a framework's update (SGD with momentum, no dampening); arguments as in `average_step`."""
    buffer = momentum * buffer + gradient
    return parameters - rate * buffer, buffer


class HeavyBall:
    """Full-batch descent on the patch model, by the heavy ball and the closed-form gradient.

    Attributes:
        filters: the parameters as they are.
        buffer: the momentum buffers as they are.
        rate: learning rate.
        momentum: factor on the buffers; 0 is plain gradient descent.
    """

    def __init__(self, filters: Filters, rate: float, momentum: float = 0.0) -> None:
        if not 0 <= momentum < 1:
            raise ConfigError(f"momentum is {momentum}; give a factor from 0 up to, not including, 1")
        self.filters = filters
        self.rate = rate
        self.momentum = momentum
        self.buffer = _zeros(filters)

    def run(self, sample: PatchSample, steps: int) -> None:
        """Take `steps` steps on the whole sample."""
        for _ in range(steps):
            slope = gradient(self.filters, sample)
            weights, weights_buffer = heavy_ball_step(
                self.filters.weights, self.buffer.weights, slope.weights, self.rate, self.momentum
            )
            bias, bias_buffer = self.filters.bias, self.buffer.bias
            if bias is not None and bias_buffer is not None and slope.bias is not None:
                bias, bias_buffer = heavy_ball_step(bias, bias_buffer, slope.bias, self.rate, self.momentum)
            self.filters = self.filters._replace(weights=weights, bias=bias)
            self.buffer = Gradient(weights_buffer, bias_buffer)

    def forget(self) -> None:
        """Clear the buffers."""
        self.buffer = _zeros(self.filters)


class BufferAlignment(NamedTuple):
    """Where a momentum buffer points; descent goes against it, so negative values mean growth.

    Attributes:
        core: the largest |<g_j, v_c>|.
        spurious: the largest |<g_j, v_s>|.
        core_lowest: the smallest <g_j, v_c>; below zero where some filter's core feature is growing.
    """

    core: float
    spurious: float
    core_lowest: float


def buffer_alignment(buffer: Tensor, v_core: Tensor, v_spurious: Tensor) -> BufferAlignment:
    """How a buffer of the weights is aligned with the features.

    Args:
        buffer: g_j, (filters, d), in either of the two forms.
        v_core: unit vector of the core feature, (d,).
        v_spurious: unit vector of the spurious feature, (d,).

    Returns:
        Its alignment.
    """
    along_core = buffer @ v_core
    return BufferAlignment(
        float(along_core.abs().max()), float((buffer @ v_spurious).abs().max()), float(along_core.min())
    )


def _zeros(filters: Filters) -> Gradient:
    return Gradient(torch.zeros_like(filters.weights), None if filters.bias is None else torch.zeros_like(filters.bias))
