"""Which feature plain training learns first (PDE, Theorem 2.2), known from the data before training.

Both features follow the tensor power recursion; what decides is growth times the largest start. If the weaker of the
bounds on one feature's growth beats the stronger bound on the other's, the outcome holds for any comparable start; in
the band between, the initial draw decides. Once the spurious feature has won, prediction equals the attribute: accuracy
is alpha, and the worst group has zero.
"""

from __future__ import annotations

from typing import Literal

from holdfast.theory.spurious.recursions import early_core_growth, early_spurious_growth

#: A feature of the patch data.
Feature = Literal["core", "spurious"]


def first_feature(beta_c: float, beta_s: float, alpha_hat: float) -> Feature | None:
    """The feature that is learned first whatever the draw, or None in the band where the draw decides.

    Args:
        beta_c: strength of the core feature.
        beta_s: strength of the spurious feature.
        alpha_hat: share of examples whose attribute agrees with the label.

    Returns:
        ``spurious`` if beta_c^3 < beta_s^3 (2 alpha_hat - 1), ``core`` if beta_c > beta_s, otherwise None.

    Example:
        >>> first_feature(0.2, 1.0, 0.98), first_feature(1.0, 0.2, 0.98), first_feature(0.99, 1.0, 0.98)
        ('spurious', 'core', None)
    """
    core, spurious = early_core_growth(beta_c, alpha_hat), early_spurious_growth(beta_s, alpha_hat)
    if spurious.lower > core.upper:
        return "spurious"
    return "core" if core.lower > spurious.upper else None


def favoured_feature(
    core_start: float, spurious_start: float, beta_c: float, beta_s: float, alpha_hat: float
) -> Feature:
    """The feature that a given draw favours: the one whose growth at the start times its start is larger.

    Args:
        core_start: the largest <w_j, v_c> before training.
        spurious_start: the largest <w_j, v_s> before training.
        beta_c: strength of the core feature.
        beta_s: strength of the spurious feature.
        alpha_hat: share of examples whose attribute agrees with the label.

    Returns:
        The feature that takes off first.
    """
    core = early_core_growth(beta_c, alpha_hat).upper * core_start
    spurious = early_spurious_growth(beta_s, alpha_hat).lower * spurious_start
    return "spurious" if spurious > core else "core"


def spurious_learning_time(spurious_start: float, beta_s: float, alpha_hat: float, rate: float) -> float:
    """Steps of gradient descent until the spurious feature takes off, T_0 = 1 / (growth x start).

    Args:
        spurious_start: the largest <w_j, v_s> before training, of the order of sigma_0.
        beta_s: strength of the spurious feature.
        alpha_hat: share of examples whose attribute agrees with the label, above 1/2.
        rate: learning rate, eta.

    Returns:
        The number of steps, of the order of 1 / (eta beta_s^3 sigma_0).
    """
    return 1 / (early_spurious_growth(beta_s, alpha_hat, rate).lower * spurious_start)
