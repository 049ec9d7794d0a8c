"""The two-layer ReLU network of SPARE's theorems, whose output at the start is exactly zero (SPARE, Section 5.2).

``f(x) = (1 / sqrt(m)) sum_r z_r relu(w_r . x / sqrt(d))``, with the second half of the units a copy of the first and
opposite output weights. Full-batch gradient descent on both layers, on ``(1 / 2n) sum (f - y)^2``. Use it to see what
the early phase of training does to outputs, which is what SPARE clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.errors import ConfigError

#: zeta, the mean slope of the activation at a standard normal input; 1/2 for ReLU.
ZETA = 0.5


class Units(NamedTuple):
    """Hidden units.

    Attributes:
        hidden: w_r, (units, d).
        output: z_r, (units,).
    """

    hidden: Tensor
    output: Tensor


@dataclass(frozen=True, eq=False)
class TwoLayer:
    """A network as it stands; its halves are apart, so that at the start they cancel to the bit.

    Attributes:
        first: the first m / 2 units.
        second: the others, at the start the same with opposite output weights.
    """

    first: Units
    second: Units

    @classmethod
    def symmetric(cls, width: int, dimension: int, generator: torch.Generator) -> TwoLayer:
        """The start: normal hidden weights, output weights of -1 or +1, and every unit once more with the other sign.

        Args:
            width: m, even.
            dimension: d.
            generator: random stream.

        Returns:
            A network whose output is zero everywhere.

        Raises:
            ConfigError: if the width is odd.
        """
        if width % 2:
            raise ConfigError(f"a symmetric start pairs its units; the width {width} is odd, give an even number")
        hidden = torch.randn(width // 2, dimension, generator=generator)
        output = 2.0 * torch.randint(2, (width // 2,), generator=generator) - 1
        return cls(Units(hidden, output), Units(hidden.clone(), -output))

    def __call__(self, inputs: Tensor) -> Tensor:
        """The network's output f on every input, (n,).

        Args:
            inputs: (n, d).
        """
        return _votes(_responses(self.first, inputs), self.first) + _votes(_responses(self.second, inputs), self.second)

    def step(self, inputs: Tensor, labels: Tensor, rate: float) -> TwoLayer:
        """The network after a step of gradient descent on both layers.

        Args:
            inputs: (n, d).
            labels: -1 or +1, (n,).
            rate: learning rate, eta.

        Returns:
            A new network.
        """
        halves = (self.first, self.second)
        responses = [_responses(half, inputs) for half in halves]
        f = _votes(responses[0], self.first) + _votes(responses[1], self.second)
        pull = (labels - f) * rate / len(labels)
        first, second = (_moved(half, seen, inputs, pull) for half, seen in zip(halves, responses, strict=True))
        return TwoLayer(first, second)


def _responses(units: Units, inputs: Tensor) -> Tensor:
    """What the units receive from every input, (n, units)."""
    return inputs @ units.hidden.T / math.sqrt(units.hidden.shape[1])


def _votes(responses: Tensor, units: Units) -> Tensor:
    """What half of the units add to every output, (n,)."""
    return responses.relu() @ units.output / math.sqrt(2 * len(units.output))


def _moved(units: Units, responses: Tensor, inputs: Tensor, pull: Tensor) -> Units:
    """Half of the units after a step in which every example pulls its output up by `pull`, (n,)."""
    n_units, dimension = units.hidden.shape
    pull = pull / math.sqrt(2 * n_units)
    hidden = ((responses > 0) * torch.outer(pull, units.output)).T @ inputs / math.sqrt(dimension)
    return Units(units.hidden + hidden, units.output + responses.relu().T @ pull)
