"""How features grow under gradient descent on PDE's patch model in the paper's form (no bias, every s_j = +1).

Where the noise has no part in the features' span, the projections of each filter obey two scalar recursions, exactly
and at every step. Early on every example pulls alike (l_i near 1/2), which bounds the increments by constants of the
data: S1 pulls on the spurious feature and S2 against it, while all examples pull on the core feature. Use them to check
a trajectory against the theory (PDE, Lemmas E.1 to E.4).
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from holdfast.theory.spurious.cubic import Filters, PatchSample, slopes


class Projections(NamedTuple):
    """Every filter's inner product with each feature.

    Attributes:
        core: <w_j, v_c>, (filters,).
        spurious: <w_j, v_s>, (filters,).
    """

    core: Tensor
    spurious: Tensor


class Growth(NamedTuple):
    """Bounds on the early increment of a projection z, as multiples of z squared.

    Attributes:
        lower: at least this.
        upper: at most this.
    """

    lower: float
    upper: float


def projections(weights: Tensor, sample: PatchSample) -> Projections:
    """Both projections of `weights`, (filters, d), on the features of `sample`."""
    return Projections(weights @ sample.core, weights @ sample.spurious)


def next_projections(weights: Tensor, sample: PatchSample, rate: float) -> Projections:
    """The projections after a step of gradient descent, by the recursions.

    Args:
        weights: before the step, (filters, d).
        sample: its noise must be orthogonal to the features, see `PatchSample.with_clean_noise`; otherwise a term
            ``sum_i l_i y_i <w, xi_i>^2 <xi_i, v>`` leaks in.
        rate: learning rate, eta.

    Returns:
        The projections after the step.
    """
    slope = slopes(Filters(weights, None, weights.new_ones(len(weights))), sample)
    core, spurious = projections(weights, sample)
    difference = (slope * sample.labels * sample.attributes).sum()
    return Projections(
        core + 3 * rate * sample.beta_c**3 / len(sample) * slope.sum() * core.square(),
        spurious + 3 * rate * sample.beta_s**3 / len(sample) * difference * spurious.square(),
    )


def early_core_growth(beta_c: float, alpha_hat: float, rate: float = 1.0) -> Growth:
    """Bounds on the increment of <w, v_c> while every l_i is near 1/2; at a tiny start it is the upper one.

    Args:
        beta_c: strength of the core feature.
        alpha_hat: share of examples whose attribute agrees with the label.
        rate: learning rate, eta.

    Returns:
        The bounds; multiply by the squared projection.
    """
    whole = 1.5 * rate * beta_c**3
    return Growth(whole * alpha_hat, whole)


def early_spurious_growth(beta_s: float, alpha_hat: float, rate: float = 1.0) -> Growth:
    """Bounds on the increment of <w, v_s> while every l_i is near 1/2; at a tiny start it is the lower one.

    Args:
        beta_s: strength of the spurious feature.
        alpha_hat: share of examples whose attribute agrees with the label.
        rate: learning rate, eta.

    Returns:
        The bounds; multiply by the squared projection.
    """
    whole = 1.5 * rate * beta_s**3
    return Growth(whole * (2 * alpha_hat - 1), whole * alpha_hat)
