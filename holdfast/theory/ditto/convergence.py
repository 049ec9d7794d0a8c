"""How fast personal models converge: the bounds of Ditto, Appendix E.

F_k is μ-strongly convex and smooth, stochastic gradients have second moment at most G₁², personal models stay within M
of w* in mean square, and a client takes part with probability p_k. D_t is the personal model's mean squared distance
from its optimum, E_t the global model's from w*. A personal model inherits the rate of the global one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """The constants of Appendix E, by the document's names."""

    mu: float
    lambda_: float
    G1: float
    M: float
    p: float = 1.0

    @property
    def force(self) -> float:
        """G₁ + λM, the root mean square of a personal step's gradient at w*."""
        return self.G1 + self.lambda_ * self.M

    @property
    def pull(self) -> float:
        """(μ + λ)p_k, by which a step shrinks the distance in the mean, per unit of step size."""
        return (self.mu + self.lambda_) * self.p


def step_size(assumed: Assumptions, g: float) -> float:
    """η = 2g/((μ + λ)p_k). Lemma 13 has g = 1/(t + 1), Theorem 9 the rate g(t) of the global model."""
    return 2 * g / assumed.pull


def next_distance(assumed: Assumptions, g: float, distance: float, global_distance: float) -> float:
    """Lemma 13: a bound on D_{t+1} from D_t and E_t, after a step of size `step_size`.

    The bound is the printed one. Its last term could do without p_k, which cancels in the proof.

    Args:
        assumed: the constants.
        g: decides the step size.
        distance: D_t, or a bound on it.
        global_distance: E_t, or a bound on it.

    Returns:
        The bound. The factor 1 − 2g, negative at first, is taken as zero then, so that a bound on D_t will do.
    """
    near = math.sqrt(global_distance)
    noise = 4 * g**2 * (assumed.force + assumed.lambda_ * near) ** 2 / assumed.pull**2
    return max(0.0, 1 - 2 * g) * distance + noise + 4 * g * assumed.lambda_ * math.sqrt(distance) * near / assumed.pull


def distances(assumed: Assumptions, start: float, global_distances: Sequence[float]) -> list[float]:
    """Bounds on D_0, D_1, ... with Lemma 13's step sizes, one more than there are global distances."""
    distances = [start]
    for t, global_distance in enumerate(global_distances):
        distances.append(next_distance(assumed, 1 / (t + 1), distances[-1], global_distance))
    return distances


def rate_constant(assumed: Assumptions, start: float, g0: float) -> float:
    """Theorem 9: a C with D_t ≤ C·g(t), where E_t ≤ g(t), g vanishes and g(t + 1)/g(t) ≥ 1 − g(t).

    The document says that some finite C exists. This one follows from its induction: with step size 2g(t)/((μ + λ)p_k)
    the induction closes if C ≥ α + β√C, where α = 4(G₁ + λM + λ√g₀)²/((μ + λ)p_k)² and β = 4λ/((μ + λ)p_k). For
    g(t) = 1/t the recursion comes as close to it as one likes when it begins late.

    Args:
        assumed: the constants.
        start: D at the first step.
        g0: g at the first step, at most 1/2; begin to count where that holds.

    Returns:
        C.
    """
    alpha = 4 * (assumed.force + assumed.lambda_ * math.sqrt(g0)) ** 2 / assumed.pull**2
    beta = 4 * assumed.lambda_ / assumed.pull
    root = (beta + math.sqrt(beta**2 + 4 * alpha)) / 2
    return max(root**2, start / g0)
