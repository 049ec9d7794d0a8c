"""Exact trajectories of Ditto and FedAvg on quadratics, with every client in every round and exact gradients.

With F_k(w) = h_k(w − ŵ_k)²/2 a gradient step contracts towards ŵ_k, so rounds have closed forms. They decide questions
that a loop answers only by its details: that Ditto's personal step is pulled towards the model a client received
(Algorithm 2), not towards the one it is about to send; and that FedAvg with several local steps and a constant step
size has a fixed point which is not the minimiser where the h_k differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from holdfast.theory.ditto.closed_form import Vector


def ditto_trajectory(
    optima: ArrayLike,
    rounds: int,
    *,
    lambda_: float,
    global_step: float,
    personal_step: float,
    global_steps: int = 1,
    personal_steps: int = 1,
    start: float = 0.0,
) -> tuple[Vector, Vector]:
    """Ditto with FedAvg on F_k(w) = (w − ŵ_k)²/2 (Algorithm 2).

    Args:
        optima: ŵ_k, shape (clients,).
        rounds: T.
        lambda_: λ.
        global_step: η_g.
        personal_step: η_l.
        global_steps: r, local steps on the global problem per round.
        personal_steps: s, steps on the personal problem per round.
        start: w⁰, also of every personal model.

    Returns:
        The global models, shape (rounds + 1,), and the personal models, shape (rounds + 1, clients), from the start on.
    """
    own = np.asarray(optima, np.float64)
    passed = np.arange(rounds + 1)
    common = own.mean() + (1 - global_step) ** (global_steps * passed) * (start - own.mean())
    contraction = (1 - personal_step * (1 + lambda_)) ** personal_steps
    personal = np.full((rounds + 1, len(own)), float(start))
    for t in range(rounds):
        personal[t + 1] = contraction * personal[t] + (1 - contraction) * (own + lambda_ * common[t]) / (1 + lambda_)
    return common, personal


def fedavg_fixed_point(optima: ArrayLike, curvatures: ArrayLike, step: float, local_steps: int) -> float:
    """Where FedAvg ends on F_k(w) = h_k(w − ŵ_k)²/2 with a constant step size.

    Args:
        optima: ŵ_k.
        curvatures: h_k.
        step: the step size, below 2/h_k for every client.
        local_steps: r.

    Returns:
        The mean of the ŵ_k weighed by 1 − (1 − step·h_k)^r. The minimiser of the average loss has the weights h_k,
        which is the same for one local step, or where all h_k are equal, and otherwise only as the step size vanishes.
    """
    weights = 1 - (1 - step * np.asarray(curvatures, np.float64)) ** local_steps
    return float((weights * np.asarray(optima, np.float64)).sum() / weights.sum())
