"""Where SPARE's second phase ends: at the linear optimum, which may lean on the spurious feature alone.

SPARE, Theorem 5.3.3. On data whose attribute always agrees with the class, least squares shares the output between core
and spurious feature by their noise: with R the ratio of noise to signal, p / q = R_s^2 / R_c^2. So a spurious feature
that is less noisy than the core one carries the output for good, however well the core feature predicts the class on
all data.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from holdfast.theory.spurious.mixture import Mixture, MixtureSample


class Shares(NamedTuple):
    """What the features contribute to the output of an example of class +1, whose target is 1.

    Attributes:
        core: p = <v_c, beta>.
        spurious: q = <v_s, beta>.
    """

    core: float
    spurious: float


def optimal_shares(core_ratio: float, spurious_ratio: float) -> Shares:
    """The contributions at the population optimum of majority-only data.

    Args:
        core_ratio: R_c = sigma_c / |v_c|.
        spurious_ratio: R_s = sigma_s / |v_s|.

    Returns:
        q = 1 / (1 + 2 R_s^2 + R_s^2 / R_c^2) and p = q R_s^2 / R_c^2.

    Example:
        >>> p, q = optimal_shares(1.0, 0.1)
        >>> round(p / q, 12), q > 0.97
        (0.01, True)
    """
    noise = (spurious_ratio / core_ratio) ** 2
    spurious = 1 / (1 + 2 * spurious_ratio**2 + noise)
    return Shares(noise * spurious, spurious)


def fitted_shares(mixture: Mixture, sample: MixtureSample) -> Shares:
    """The contributions at the least-squares optimum of a sample, averaged over both classes.

    Args:
        mixture: what the sample was drawn from, with attribute value 0 for class -1 and 1 for class +1.
        sample: the examples.

    Returns:
        The contributions.
    """
    inputs, labels = sample.inputs.double(), sample.labels.double()
    beta = torch.linalg.pinv(inputs.T @ inputs, hermitian=True) @ (inputs.T @ labels)
    signs = torch.tensor([-0.5, 0.5], dtype=torch.float64)
    return Shares(float(signs @ (mixture.core.double() @ beta)), float(signs @ (mixture.spurious.double() @ beta)))
