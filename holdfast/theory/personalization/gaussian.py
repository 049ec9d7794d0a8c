"""Gaussian environments, where accuracy and loss of a linear model have closed forms (Appendix E.2).

``y`` is 0 or 1, ``x_r ~ N(2y - 1, 1)`` and ``x_s ~ N(c (2y - 1), 1)``: c is the environment. A model is ``(w_r, w_s)``;
its margin ``(2y - 1) w.x`` is normal with mean ``w_r + c w_s`` and variance ``|w|^2``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)


def draw(n: int, c: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Examples of environment c: inputs (n, 2) and labels (n,)."""
    y = rng.integers(0, 2, n).astype(np.float64)
    sign = 2 * y - 1
    return np.stack([sign, c * sign], axis=1) + rng.standard_normal((n, 2)), y


def accuracy(w: Array, c: float) -> float:
    """``Phi((w_r + c w_s) / |w|)``."""
    return 0.5 * (1 + math.erf(float((w[0] + c * w[1]) / np.linalg.norm(w)) / math.sqrt(2)))


def loss(w: Array, c: float) -> float:
    """``E softplus(-m)`` with m the margin, by Gauss-Hermite quadrature."""
    margins = w[0] + c * w[1] + np.linalg.norm(w) * _NODES
    return float((np.logaddexp(0, -margins) * _WEIGHTS).sum() / math.sqrt(2 * math.pi))


def optimum(environments: Sequence[float], steps: int = 50) -> Array:
    """The best model for an equal mixture of environments, by Newton's method; ``(2, 2c)`` for a single one."""
    w = np.zeros(2)
    nodes = np.stack(np.meshgrid(_NODES, _NODES), axis=-1).reshape(-1, 2)
    weights = np.outer(_WEIGHTS, _WEIGHTS).ravel() / (2 * math.pi)
    for _ in range(steps):
        gradient, hessian = np.zeros(2), np.zeros((2, 2))
        for c in environments:
            x = nodes + np.array([1.0, c])
            wrong = 1 / (1 + np.exp(x @ w))
            gradient -= (weights * wrong) @ x / len(environments)
            hessian += (x * (weights * wrong * (1 - wrong))[:, None]).T @ x / len(environments)
        w = w - np.linalg.solve(hessian, gradient)
    return w
