"""Ditto by stochastic gradients on scalar quadratics, to see the rate of Corollary 1: personal models converge as 1/t.

Many independent federations are run side by side. Each step, m of K clients take part: each takes one personal step
towards its optimum and the global model it received, with Lemma 13's step size, and one gradient of the global problem,
whose mean is the server's step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from holdfast.streams import numpy_stream
from holdfast.theory.ditto.closed_form import Vector
from holdfast.theory.ditto.convergence import Assumptions, step_size

_BLOCK = 500


@dataclass(frozen=True)
class Distances:
    """Mean squared distances from the optima, and the constants of Appendix E that the run showed.

    Attributes:
        personal: D_t, mean over runs and clients, shape (steps + 1,).
        common: E_t, mean over runs, shape (steps + 1,).
        G1: root of the largest second moment of a stochastic gradient of F_k, over clients and steps.
        M: root of the largest mean squared distance of a personal model from w*, over clients and steps.
    """

    personal: Vector
    common: Vector
    G1: float
    M: float


def stochastic_ditto(
    optima: ArrayLike, *, selected: int, lambda_: float, noise: float, steps: int, runs: int, seed: int
) -> Distances:
    """Run Ditto with FedSGD on F_k(w) = (w − ŵ_k)²/2 from zero.

    Args:
        optima: ŵ_k, shape (clients,).
        selected: clients that take part in a step.
        lambda_: λ.
        noise: standard deviation of the noise in each gradient.
        steps: how many; the server's step sizes are 2/(t + 4).
        runs: independent federations.
        seed: of every draw.

    Returns:
        The distances.
    """
    own = np.asarray(optima, np.float64)
    assumed = Assumptions(mu=1.0, lambda_=lambda_, G1=0.0, M=0.0, p=selected / len(own))
    target = own.mean()
    best = (own + lambda_ * target) / (1 + lambda_)
    stream = numpy_stream(seed, "ditto-rates")
    common, personal = np.zeros((1, runs, 1)), np.zeros((1, runs, len(own)))
    errors: list[Vector] = []
    gradients, offsets = [], []
    for start in range(0, steps + 1, _BLOCK):
        length = min(_BLOCK, steps + 1 - start)
        shape = (length, runs, len(own))
        mask = (stream.random(shape).argsort(axis=-1) < selected).astype(np.float64)
        noise_w = noise * (mask * stream.standard_normal(shape)).sum(axis=-1, keepdims=True) / selected
        noise_v = noise * stream.standard_normal(shape)
        pull_w = (mask * own).sum(axis=-1, keepdims=True) / selected - noise_w
        common, personal = _grown(common[-1], length), _grown(personal[-1], length)
        for i in range(length):
            step = step_size(assumed, 1 / (start + i + 1)) * mask[i]
            v, w = personal[i], common[i]
            personal[i + 1] = v - step * ((1 + lambda_) * v - own + noise_v[i] - lambda_ * w)
            common[i + 1] = w - 2 / (start + i + 4) * (w - pull_w[i])
        seen = personal[:-1]
        errors.append(np.stack([((seen - best) ** 2).mean((1, 2)), ((common[:-1] - target) ** 2).mean((1, 2))]))
        gradients.append(((seen - own + noise_v) ** 2).mean(axis=1).max())
        offsets.append(((seen - target) ** 2).mean(axis=1).max())
    both = np.concatenate(errors, axis=1)
    return Distances(both[0], both[1], float(np.sqrt(max(gradients))), float(np.sqrt(max(offsets))))


def _grown(last: Vector, length: int) -> Vector:
    """Room for `length` more steps after the last one."""
    return np.concatenate([last[None], np.empty((length, *last.shape))])
