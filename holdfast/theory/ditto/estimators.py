"""Estimators of linear regression on many clients: local, global, Ditto's, and the best there is for any design.

Ditto, Appendix B.2. The loss is F_k(w) = ‖X_k w − y_k‖²/(2n). The document writes 1/n, but its minimiser (equation 23)
and its λ* belong to 1/(2n); with 1/n the best λ is twice as large. All arrays are float64: designs (clients, samples,
parameters), targets (clients, samples), models (clients, parameters).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.theory.ditto.closed_form import Vector


def least_squares(designs: Vector, targets: Vector) -> Vector:
    """The local models ŵ_k = (X_kᵀX_k)⁻¹X_kᵀy_k."""
    return _solve(_grams(designs), np.einsum("knd,kn->kd", designs, targets))


def global_model(designs: Vector, local: Vector) -> Vector:
    """w*, which minimises the sum of the losses: the mean of the local models weighed by X_kᵀX_k (equation 22).

    The document's equation has its factor 1/K outside the argmin; it belongs inside.
    """
    grams = _grams(designs)
    return np.linalg.solve(grams.sum(axis=0), np.einsum("kde,ke->d", grams, local))


def personalized(designs: Vector, local: Vector, anchor: Vector, lambda_: float) -> Vector:
    """Ditto's models, argmin F_k(v) + (λ/2)‖v − w*‖² (equation 23).

    Args:
        designs: X_k.
        local: ŵ_k.
        anchor: w*.
        lambda_: λ, finite.

    Returns:
        ŵ_k(λ).
    """
    hessians = _grams(designs) / designs.shape[1]
    pulled = np.einsum("kde,ke->kd", hessians, local) + lambda_ * anchor
    return _solve(hessians + lambda_ * np.eye(designs.shape[2]), pulled)


@dataclass(frozen=True)
class Bayes:
    """What all data together say about each client's parameter.

    Attributes:
        mean: of shape (clients, parameters).
        covariance: of shape (clients, parameters, parameters).
    """

    mean: Vector
    covariance: Vector


def bayes(designs: Vector, targets: Vector, sigma: float, tau: float) -> Bayes:
    """The posterior of every w_k given all data, for any designs and benign clients (Lemmas 2 and 4 to 6).

    Where all X_kᵀX_k are one multiple of the identity, its mean is Ditto's estimator at λ*; elsewhere no single λ gives
    it.
    """
    grams, local = _grams(designs), least_squares(designs, targets)
    own = grams / sigma**2
    identity = np.eye(designs.shape[2])
    precisions = np.linalg.inv(sigma**2 * np.linalg.inv(grams) + tau**2 * identity)
    weighed = np.einsum("kde,ke->kd", precisions, local)
    of_theta = np.linalg.inv(precisions.sum(axis=0) - precisions)
    theta = np.einsum("kde,ke->kd", of_theta, weighed.sum(axis=0) - weighed)
    others = np.linalg.inv(of_theta + tau**2 * identity)
    covariance = np.asarray(np.linalg.inv(others + own), np.float64)
    informed = np.einsum("kde,ke->kd", own, local) + np.einsum("kde,ke->kd", others, theta)
    return Bayes(np.einsum("kde,ke->kd", covariance, informed), covariance)


def _grams(designs: Vector) -> Vector:
    """X_kᵀX_k."""
    return np.asarray(np.einsum("knd,kne->kde", designs, designs))


def _solve(matrices: Vector, vectors: Vector) -> Vector:
    """A solution per client."""
    return np.asarray(np.linalg.solve(matrices, vectors[..., None])[..., 0], np.float64)
