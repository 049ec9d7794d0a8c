"""What SPARE's two-layer network does early in training, predicted from feature strengths and group sizes.

In its first steps the network follows a linear model on ``sqrt(2 / d) zeta x``, so its output on a feature grows in
proportion to the feature's squared norm and to how unevenly it is spread over the classes. That is why examples of one
class with different attributes drift apart, and why clustering early outputs finds the groups. It holds for the first
few steps; groups of equal size do not separate at all.

Units: SPARE's Theorem 5.3.1 gives the *alignment* <v, beta> with the linear model's weights. The network's output is
sqrt(2 / d) zeta times that, and outputs are what is predicted here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.theory.spurious.mixture import Mixture
from holdfast.theory.spurious.two_layer import ZETA


class EarlyOutputs(NamedTuple):
    """Predicted outputs on bare features.

    Attributes:
        core: f(v_c) of the classes -1 and +1, (2,).
        spurious: f(v_s) of each attribute value, (attributes,).
    """

    core: Tensor
    spurious: Tensor


def early_outputs(mixture: Mixture, rate: float, steps: int) -> EarlyOutputs:
    """Outputs on every feature after a few steps.

    Args:
        mixture: features and group sizes.
        rate: learning rate, eta.
        steps: t.

    Returns:
        ``(2 eta zeta^2 t / d) c |v_c|^2 n_c / n``, and for attributes ``(2 eta zeta^2 t / d) |v_s|^2`` times the
        difference between the attribute's counts in class +1 and in class -1, over n.
    """
    factor = _factor(mixture, rate, steps) / mixture.n
    class_sizes = mixture.counts.sum(dim=1) * torch.tensor([-1, 1])
    return EarlyOutputs(
        factor * mixture.core.square().sum(dim=1) * class_sizes,
        factor * mixture.spurious.square().sum(dim=1) * _size_gaps(mixture),
    )


def early_gap(mixture: Mixture, rate: float, steps: int, majority: int, minority: int) -> float:
    """How far apart the mean outputs of two attribute values are inside a class; the same in either class.

    Args:
        mixture: features and group sizes.
        rate: learning rate, eta.
        steps: t.
        majority: an attribute value.
        minority: another.

    Returns:
        f(v_majority) - f(v_minority): linear in t, in the gaps of group sizes and in |v_s|^2.
    """
    spurious = early_outputs(mixture, rate, steps).spurious
    return float(spurious[majority] - spurious[minority])


def early_noise_bound(mixture: Mixture, rate: float, steps: int, core_noise: float, spurious_noise: float) -> float:
    """Bound on the standard deviation of outputs inside a group (kappa, in output units).

    Groups can be told apart where `early_gap` is large against this.

    Args:
        mixture: features and group sizes.
        rate: learning rate, eta.
        steps: t.
        core_noise: standard deviation of the noise along core features, sigma_c.
        spurious_noise: the same along spurious features, sigma_s.

    Returns:
        The bound, for noise that is confined to the features.
    """
    class_sizes = mixture.counts.sum(dim=1)
    core = (class_sizes * core_noise * mixture.core.norm(dim=1)).norm()
    spurious = (_size_gaps(mixture) * spurious_noise * mixture.spurious.norm(dim=1)).norm()
    return _factor(mixture, rate, steps) * float(core + spurious) / mixture.n


def linear_surrogate(inputs: Tensor, labels: Tensor, rate: float, steps: int) -> Tensor:
    """Weights of the linear model on ``sqrt(2 / d) zeta x`` after gradient descent from zero on its squared loss.

    The theorem's model has two features more, a constant and a function of |x|. Labels that are balanced don't pull on
    them where |x|^2 is near d, and they are left out.

    Args:
        inputs: (n, d).
        labels: -1 or +1, (n,).
        rate: learning rate, eta.
        steps: t; after one step the weights are (eta / n) sqrt(2 / d) zeta X^T y.

    Returns:
        beta, (d,).
    """
    features = surrogate_features(inputs)
    beta = features.new_zeros(features.shape[1])
    for _ in range(steps):
        beta = beta - rate / len(labels) * (features.T @ (features @ beta - labels))
    return beta


def surrogate_features(inputs: Tensor) -> Tensor:
    """What the linear model sees, ``sqrt(2 / d) zeta x``, (n, d); times its weights it gives outputs."""
    return math.sqrt(2 / inputs.shape[1]) * ZETA * inputs


def _factor(mixture: Mixture, rate: float, steps: int) -> float:
    return 2 * rate * ZETA**2 * steps / mixture.dimension


def _size_gaps(mixture: Mixture) -> Tensor:
    """By attribute value, how many more examples class +1 has than class -1, (attributes,)."""
    return mixture.counts[1] - mixture.counts[0]
