"""FedAvg and personalization on Gaussian environments, with a linear model of two weights (Appendix E.2).

Figures 7 and 8 of Personalized FL with spurious features.

Client k is in environment ``c = +1`` or ``-1`` by its parity (case a, the correlation vanishes over clients), or ``+1``
or ``0`` (case b, it weakens). Every client has 128 examples; steps are SGD on the logistic loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from holdfast.theory.personalization.gaussian import draw
from holdfast.theory.personalization.linear import input_gradients

Array = NDArray[np.float64]

CASES = {"a": (1.0, -1.0), "b": (1.0, 0.0)}


@dataclass(frozen=True)
class Simulation:
    """Sizes of the federation and of its steps."""

    clients: int = 50
    cohort: int = 5
    examples: int = 128
    batch: int = 32
    rate: float = 0.1

    def minibatches(self, rng: np.random.Generator, epochs: int) -> Iterator[NDArray[np.intp]]:
        """Rows of each step."""
        for _ in range(epochs):
            yield from np.split(rng.permutation(self.examples), self.examples // self.batch)


@dataclass(frozen=True, eq=False)
class Path:
    """How a model moved.

    Attributes:
        weights: after each round or step, shape (times, 2).
        gradients: of clients, in the order of their steps, shape (steps, 2).
    """

    weights: Array
    gradients: Array = field(default_factory=lambda: np.empty((0, 2)))


def federate_gaussian(case: str, rounds: int, seed: int, simulation: Simulation | None = None) -> Path:
    """FedAvg from zero: one local epoch per client and round.

    Args:
        case: ``a`` or ``b``.
        rounds: how many.
        seed: draws data, cohorts and batches.
        simulation: sizes.
    """
    world, rng = simulation or Simulation(), np.random.default_rng(seed)
    data = [draw(world.examples, CASES[case][client % 2], rng) for client in range(world.clients)]
    w, path, gradients = np.zeros(2), [], []
    for _ in range(rounds):
        sent = []
        for client in rng.choice(world.clients, world.cohort, replace=False):
            x, y = data[client]
            own = w.copy()
            for rows in world.minibatches(rng, 1):
                gradient = (_sigmoid(x[rows] @ own) - y[rows]) @ x[rows] / len(rows)
                gradients.append(gradient)
                own -= world.rate * gradient
            sent.append(own)
        w = np.mean(sent, axis=0)
        path.append(w)
    return Path(np.array(path), np.array(gradients))


def personalise_gaussian(
    c: float,
    seed: int,
    *,
    adversarial: float = 0.0,
    weights: float = 0.0,
    epochs: int = 50,
    epsilon: float = 0.5,
    shared: tuple[float, float] = (2.0, 0.0),
    simulation: Simulation | None = None,
) -> Path:
    """Personalization of the shared model on one client, with both regularisers.

    Args:
        c: the client's environment.
        seed: draws its data and batches.
        adversarial: coefficient of `R_adv`.
        weights: coefficient of `R_L2`.
        epochs: walks through its data.
        epsilon: budget of the attack, in the largest norm.
        shared: the shared model.
        simulation: sizes.
    """
    world, rng = simulation or Simulation(), np.random.default_rng(seed)
    x, y = draw(world.examples, c, rng)
    w_g = np.array(shared)
    moved = x + epsilon * np.sign(input_gradients(w_g, x, y))
    targets = _sigmoid(moved @ w_g)
    w, path = w_g.copy(), []
    for rows in world.minibatches(rng, epochs):
        gradient = (_sigmoid(x[rows] @ w) - y[rows]) @ x[rows] / len(rows)
        gradient += adversarial * (_sigmoid(moved[rows] @ w) - targets[rows]) @ moved[rows] / len(rows)
        away = w - w_g
        gradient += weights * away / np.sqrt(away @ away + 1e-12)
        w = w - world.rate * gradient
        path.append(w)
    return Path(np.array(path))


def _sigmoid(logits: Array) -> Array:
    values: Array = np.exp(-np.logaddexp(0, -logits))
    return values
