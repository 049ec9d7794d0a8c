"""Closed forms of Ditto's analysis: errors at any λ, the best λ, and the posterior behind it (Theorems 1 to 8).

Ditto's estimator mixes what a client knows with what the others know, ŵ_k(λ) = a·ŵ_k + b·Σ_{j≠k} ŵ_j (Lemma 9). Its
error is Gaussian, so two moments per coordinate say everything: V, the variance of a benign client's error, and C, the
covariance of the errors of two benign clients. λ may be a number or an array, 0 (local) and infinity (global) included.

The theorems on fairness treat clients as independent. They are not, since all lean on one global model: the spread over
benign clients that a measurement finds is `spread`. Without adversaries it is least at `best_lambda` too; with them its
minimum, `fairest_lambda`, is elsewhere (1.396 where Theorem 8 gives 1.185, in the setting of Figure 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from holdfast.theory.ditto.setting import PointEstimation

Vector = NDArray[np.float64]


def best_lambda(setting: PointEstimation) -> float:
    """λ* of Theorems 1, 2, 5 and 6; with malicious clients λ_a* of Theorems 3, 4, 7 and 8.

    Returns:
        The λ that minimises `error` and `device_variance`; infinity for identical clients without adversaries. It
        depends on neither β nor d.
    """
    unlike = setting.K * setting.tau**2 + setting.excess / (setting.K - 1)
    return setting.sigma**2 / setting.n * setting.K / unlike if unlike > 0 else math.inf


def mixing(setting: PointEstimation, lambda_: ArrayLike) -> tuple[Vector, Vector]:
    """The weights a of a client's own estimate and b of each other one's (Lemma 9); a + (K − 1)b = 1."""
    return _weights(setting, _share(setting, lambda_))


def coordinate_error(setting: PointEstimation, lambda_: ArrayLike) -> Vector:
    """V(λ): expected squared error of a benign client per coordinate."""
    return _moments(setting, _share(setting, lambda_))[0]


def coordinate_covariance(setting: PointEstimation, lambda_: ArrayLike) -> Vector:
    """C(λ): covariance of the errors of two benign clients per coordinate."""
    return _moments(setting, _share(setting, lambda_))[1]


def error(setting: PointEstimation, lambda_: ArrayLike) -> Vector:
    """E‖ŵ_k(λ) − w_k‖² = dV of a benign client; on predictions, ‖X_k(·)‖², it is β times that."""
    return setting.d * coordinate_error(setting, lambda_)


def device_variance(setting: PointEstimation, lambda_: ArrayLike) -> Vector:
    """2dV², the variance of one benign client's squared error: what Theorems 2, 4, 6 and 8 minimise."""
    return 2 * setting.d * coordinate_error(setting, lambda_) ** 2


def spread(setting: PointEstimation, lambda_: ArrayLike) -> Vector:
    """Expected variance of the squared error over the benign clients, 2d(1 − 1/K_b)(V² − C²): what one measures."""
    return _spread(setting, _share(setting, lambda_))


def fairest_lambda(setting: PointEstimation) -> float:
    """The λ at which `spread` is least, found exactly: it is a polynomial of degree four in λ/(c + λ)."""
    nodes = np.linspace(0.0, 1.0, 5)
    values = _spread(setting, nodes)
    slope = Polynomial.fit(nodes, values / values.max(), 4).deriv()
    roots = slope.roots().astype(np.complex128)
    inside = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)]
    candidates = np.array([0.0, *inside, 1.0])
    share = float(candidates[np.argmin(_spread(setting, candidates))])
    return setting.curvature * share / (1 - share) if share < 1 else math.inf


@dataclass(frozen=True)
class Posterior:
    """What is known of a benign client's parameter, given its own estimate and the mean of the others' (Lemmas 7, 11).

    Attributes:
        own: weight of its own estimate in the posterior mean.
        others: weight of the mean of the others' estimates.
        variance: σ_w², the posterior variance per coordinate.
    """

    own: float
    others: float
    variance: float

    def mean(self, own: ArrayLike, others: ArrayLike) -> Vector:
        """The posterior mean, which is Ditto's estimator at `best_lambda`."""
        return self.own * np.asarray(own, np.float64) + self.others * np.asarray(others, np.float64)


def posterior(setting: PointEstimation) -> Posterior:
    """The posterior of a benign client's parameter (Lemma 7; Lemmas 10 and 11 for point estimation)."""
    spread_of_others = setting.K * setting.tau**2 + setting.noise + setting.excess / (setting.K - 1)
    own, others = 1 / setting.noise, (setting.K - 1) / spread_of_others
    return Posterior(own / (own + others), others / (own + others), 1 / (own + others))


def conditional_spread(shifts: ArrayLike, variance: float) -> float:
    """Spread over many clients given the data, when each estimator is off its posterior mean (proof of Theorem 2).

    Args:
        shifts: ŵ_k(λ*) − ŵ_k(λ), shape (clients, parameters).
        variance: σ_w², the posterior variance per coordinate.

    Returns:
        The expected variance of the squared error over clients, for a large number of them. It is least, 2dσ_w⁴, where
        nothing is shifted.
    """
    squares = (np.asarray(shifts, np.float64) ** 2).sum(axis=1)
    d = np.asarray(shifts).shape[1]
    return float(2 * d * variance**2 + 4 * variance * squares.mean() + squares.var())


def _share(setting: PointEstimation, lambda_: ArrayLike) -> Vector:
    """λ/(c + λ), how far an estimator goes from the local model towards the global one; 1 for infinity."""
    return 1 - setting.curvature / (setting.curvature + np.asarray(lambda_, np.float64))


def _weights(setting: PointEstimation, share: Vector) -> tuple[Vector, Vector]:
    return 1 - share * (1 - 1 / setting.K), share / setting.K


def _moments(setting: PointEstimation, share: Vector) -> tuple[Vector, Vector]:
    """V and C."""
    a, b = _weights(setting, share)
    tau2, s2, each = setting.tau**2, setting.noise, setting.tau**2 + setting.noise
    v = (1 - a) ** 2 * tau2 + a**2 * s2 + b**2 * ((setting.K - 1) * each + setting.excess)
    c = 2 * b * ((a - 1) * tau2 + a * s2) + b**2 * ((setting.K - 2) * each + setting.excess)
    return v, c


def _spread(setting: PointEstimation, share: Vector) -> Vector:
    v, c = _moments(setting, share)
    return 2 * setting.d * (1 - 1 / setting.K_b) * (v**2 - c**2)
