"""FedMGDA+: the shortest vector among bounded mixtures of normalised updates (Hu et al., 2020).

Where it is not zero it is a direction in which no client's loss rises. A client's influence is bounded: its update
counts with length one, and its weight is within epsilon of 1 / m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregators.base import Aggregator
from holdfast.federated.aggregators.sums import norms, products, weighted_sum

_Vector = NDArray[np.float64]
_RIDGE = 1e-9
_TOLERANCE = 1e-12


def shortest_mixture(gram: Tensor, epsilon: float) -> Tensor:
    """Weights p that minimise p'Gp / 2 with sum one, p >= 0 and every p within epsilon of 1 / m.

    A primal active-set method: go to the minimum over the free weights, stop at the first bound on the way and hold the
    weights that met it; at a minimum, let go of the held weight whose gradient asks for it most. The objective falls
    with every move, so no set is visited twice.

    Args:
        gram: inner products G of the vectors, shape (m, m), of order one.
        epsilon: how far a weight may be from 1 / m.

    Returns:
        float64 of shape (m,). Not unique where the vectors are linearly dependent; the mixture is.
    """
    G = gram.double().cpu().numpy()
    m = len(G)
    lower, upper = max(1 / m - epsilon, 0.0), min(1 / m + epsilon, 1.0)
    p = np.full(m, 1 / m)
    free = np.full(m, lower < upper)
    for _ in range(100 * m):
        step = _to_minimum(G, p, free)
        room = np.divide(np.where(step > 0, upper - p, lower - p), step, out=np.full(m, np.inf), where=step != 0)
        length = min(1.0, float(room.min()))
        p = np.clip(p + length * step, lower, upper)
        if length < 1:
            met = room <= length
            p[met] = np.where(step[met] > 0, upper, lower)
            free &= ~met
        elif np.abs(step).max() <= _TOLERANCE and not _let_go(G @ p, p, free, lower, upper):
            break
    return torch.from_numpy(p)


def _to_minimum(G: _Vector, p: _Vector, free: NDArray[np.bool_]) -> _Vector:
    """The step to the minimum over the free weights, shape (m,), with sum zero.

    A tiny ridge on the step (not on the objective) makes it unique where vectors are linearly dependent. Taken again
    and again it still ends in a minimum of the objective itself.
    """
    step = np.zeros(len(p))
    chosen = np.flatnonzero(free)
    if len(chosen) > 1:
        system = G[np.ix_(chosen, chosen)] + _RIDGE * np.eye(len(chosen))
        right = np.stack([-(G[chosen] @ p), np.ones(len(chosen))], axis=1)
        downhill, level = np.linalg.solve(system, right).T
        step[chosen] = downhill - level * (downhill.sum() / level.sum())
        step[chosen] -= step[chosen].mean()
    return step


def _let_go(gradient: _Vector, p: _Vector, free: NDArray[np.bool_], lower: float, upper: float) -> bool:
    """Free the held weight that should move most, or a pair of them if none is free; whether there was one."""
    may_rise = np.where(~free & (p < upper), gradient, np.inf)
    may_fall = np.where(~free & (p > lower), gradient, -np.inf)
    riser, faller = int(may_rise.argmin()), int(may_fall.argmax())
    if not free.any():
        if may_fall[faller] - may_rise[riser] <= _TOLERANCE:
            return False
        free[[riser, faller]] = True
        return True
    level = float(gradient[free].mean())
    rises, falls = level - may_rise[riser], may_fall[faller] - level
    if max(rises, falls) <= _TOLERANCE:
        return False
    free[riser if rises >= falls else faller] = True
    return True


def fedmgda(updates: Tensor, epsilon: float) -> Tensor:
    """The shortest bounded mixture of the normalised updates.

    Args:
        updates: shape (m, parameters); zero vectors have no direction and are left out.
        epsilon: how far a weight may be from one over the number of directions.

    Returns:
        Shape (parameters,), in the dtype of the updates; zero if all updates are.
    """
    lengths = norms(updates)
    weights = torch.zeros_like(lengths)
    moving = lengths > 0
    if moving.any():
        scale = 1 / lengths[moving]
        gram = products(updates)[moving][:, moving] * scale * scale[:, None]
        weights[moving] = shortest_mixture(gram, epsilon).to(lengths.device) * scale
    return weighted_sum(updates, weights)


@dataclass(frozen=True)
class FedMgda(Aggregator):
    """FedMGDA+.

    Attributes:
        epsilon: how far a client's weight may be from the uniform one; 0 is the mean of normalised updates, 1 is free.
        server_rate: the step along the found direction.
    """

    name: ClassVar[str] = "fedmgda"

    epsilon: float = 0.1
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise ConfigError(f"fedmgda's epsilon is {self.epsilon:g}; give a number from 0 to 1")

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return self.server_rate * fedmgda(updates, self.epsilon)
