"""FedMGDA+: the shortest vector among bounded mixtures of normalised updates (Hu et al., 2020).

Where it is not zero it is a direction in which no client's loss rises. A client's influence is bounded: its update
counts with length one, and its weight is within epsilon of 1 / m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation.base import Aggregator, Covers
from holdfast.federated.aggregation.sums import directions, ordinary, products, update_norms, weighted_sum

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
    G = gram.double()
    m = len(G)
    lower, upper = max(1 / m - epsilon, 0.0), min(1 / m + epsilon, 1.0)
    p = torch.full((m,), 1 / m, dtype=torch.float64, device=G.device)
    free = torch.full((m,), lower < upper, device=G.device)
    for _ in range(100 * m):
        gradient = G @ p
        if free.sum() < 2 or gradient[free].max() - gradient[free].min() <= _TOLERANCE:
            if not _let_go(gradient, p, free, lower, upper):
                break
            continue
        step = _to_minimum(G, gradient, free)
        bound = torch.where(step > 0, p.new_tensor(upper), p.new_tensor(lower))
        room = torch.where(step == 0, torch.inf, (bound - p) / step)
        length = min(1.0, float(room.min()))
        p = (p + length * step).clamp(lower, upper)
        if length < 1:
            met = room <= length
            p[met] = bound[met]
            free &= ~met
    return p


def _to_minimum(G: Tensor, gradient: Tensor, free: Tensor) -> Tensor:
    """The step to the minimum over the free weights, shape (m,), with sum zero.

    A tiny ridge on the step (not on the objective) makes it unique where vectors are linearly dependent. Taken again
    and again it still ends in a minimum of the objective itself.
    """
    system = G[free][:, free]
    system.diagonal().add_(_RIDGE)
    right = torch.stack([-gradient[free], torch.ones_like(gradient[free])], dim=1)
    downhill, level = torch.linalg.solve(system, right).unbind(1)
    moved = downhill - level * (downhill.sum() / level.sum())
    step = torch.zeros_like(gradient)
    step[free] = moved - moved.mean()
    return step


def _let_go(gradient: Tensor, p: Tensor, free: Tensor, lower: float, upper: float) -> bool:
    """Free the held weight that should move most, or a pair of them if none is free; whether there was one."""
    may_rise = torch.where(~free & (p < upper), gradient, torch.inf)
    may_fall = torch.where(~free & (p > lower), gradient, -torch.inf)
    riser, faller = int(may_rise.argmin()), int(may_fall.argmax())
    if not free.any():
        if may_fall[faller] - may_rise[riser] <= _TOLERANCE:
            return False
        free[[riser, faller]] = True
        return True
    level = gradient[free].mean()
    rises, falls = level - may_rise[riser], may_fall[faller] - level
    if max(rises, falls) <= _TOLERANCE:
        return False
    free[riser if rises >= falls else faller] = True
    return True


def min_norm_step(updates: Tensor, epsilon: float) -> Tensor:
    """The shortest bounded mixture of the normalised updates.

    Args:
        updates: shape (m, parameters); zero vectors have no direction and are left out.
        epsilon: how far a weight may be from one over the number of directions.

    Returns:
        Shape (parameters,), in the dtype of the updates; zero if all updates are.
    """
    lengths = update_norms(updates)
    moving = lengths > 0
    if not moving.any():
        return torch.zeros_like(updates[0])
    if not ordinary(lengths[moving]):
        units = directions(updates[moving])
        return (shortest_mixture(units @ units.T, epsilon) @ units).to(updates.dtype)
    scale = 1 / lengths[moving]
    gram = products(updates)[moving][:, moving] * scale * scale[:, None]
    weights = torch.zeros_like(lengths)
    weights[moving] = shortest_mixture(gram, epsilon) * scale
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
        return self.server_rate * min_norm_step(updates, self.epsilon)

    @property
    def covers(self) -> Covers:
        """The server's rate."""
        return "length"

    def stands(self, m: int) -> int:
        """Whatever is sent, the step is no longer than the server's rate."""
        return m
