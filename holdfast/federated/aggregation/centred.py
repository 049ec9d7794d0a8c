"""Centred clipping: go from the last round's step towards every update, but not far (Karimireddy et al., 2021).

Clipping around zero shortens honest updates as well as attackers'. Around the last step, to which honest updates are
close, there is little to clip of them (https://arxiv.org/abs/2012.10333). The rule remembers its last step, and goes
with momentum: ``momentum+centred-clipping``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import sums
from holdfast.federated.aggregation.base import Aggregator, Covers, Memory, RoundFacts
from holdfast.federated.aggregation.coordinates import coordinate_median, majority

_CENTRE = "centred-clipping/centre"


def centred_clipping(updates: Tensor, centre: Tensor, radius: float | None = None, iterations: int = 1) -> Tensor:
    """The centre after so many walks towards the updates.

    Args:
        updates: shape (m, parameters).
        centre: where to start, shape (parameters,).
        radius: how far one update may pull; by default the median distance of the updates, which no minority moves
            beyond the distances of the others.
        iterations: how many walks.

    Returns:
        Shape (parameters,), in the dtype of the updates.
    """
    for _ in range(iterations):
        distances, exponent = sums.distances_from(updates, centre)
        limit = float(coordinate_median(distances[:, None]) if radius is None else np.ldexp(radius, -exponent))
        # An update at the centre pulls nowhere, however long a pull may be.
        shares = torch.where(distances > limit, limit / distances.clamp(min=torch.finfo(torch.float64).tiny), 1.0)
        centre = _towards(updates, centre, shares / len(updates))
    return centre


def _towards(updates: Tensor, centre: Tensor, weights: Tensor) -> Tensor:
    """The centre, moved by each update's distance times its weight."""
    moved = sums.combined(updates, weights) + (1 - float(weights.sum())) * centre.double()
    largest = torch.finfo(updates.dtype).max
    return moved.clamp(-largest, largest).to(updates.dtype)


@dataclass(frozen=True)
class CentredClipping(Aggregator):
    """Walk from the last round's step towards the updates, each of which pulls no farther than a radius.

    Attributes:
        radius: how far one update may pull; the median distance by default.
        iterations: how many walks per round.
    """

    name: ClassVar[str] = "centred-clipping"

    radius: float | None = None
    iterations: int = 1

    def __post_init__(self) -> None:
        if self.radius is not None and not self.radius > 0:
            raise ConfigError(f"centred-clipping's radius is {self.radius:g}; give a positive number")
        if self.iterations < 1:
            raise ConfigError(f"centred-clipping's iterations is {self.iterations}; give at least 1")

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return centred_clipping(updates, torch.zeros_like(updates[0]), self.radius, self.iterations)

    def begin(self, clients: int, parameters: int) -> Memory:
        """The first walk starts at zero."""
        return {_CENTRE: torch.zeros(parameters)}

    def step(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """From the last step, which is remembered."""
        start = memory[_CENTRE].to(updates.dtype) if _CENTRE in memory else torch.zeros_like(updates[0])
        found = centred_clipping(updates, start, self.radius, self.iterations)
        return found, {**memory, _CENTRE: found}

    @property
    def covers(self) -> Covers:
        """How far a walk goes, not where to."""
        return "length"

    def stands(self, m: int) -> int:
        """A minority; with a radius of its own the step is bounded whoever sends what."""
        return (m - 1) // 2

    def check(self, m: int, f: int) -> list[str]:
        """Half of the updates can raise the median distance."""
        super().check(m, f)
        return [majority(self.label, m, f)] if 2 * f >= m and self.radius is None else []
