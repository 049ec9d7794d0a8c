"""How much a linear model leans on spurious features, and what that costs in another environment.

Inputs are ``x = (x_r, x_s)``: features that matter and spurious ones, independent given the label. Two environments
share ``P(y)`` and ``P(x_r | y)`` and differ in ``P(x_s | y)``. The loss is logistic, ``softplus(w.x) - y w.x`` with y 0
or 1; as a function of the logit it is 1-Lipschitz, with a second derivative of at most 1/4. Models are ``w = (w_r,
w_s)``, shape (d,), of which the last `spurious` entries belong to x_s.

Statements are those of Personalized FL with spurious features, Section 4, and Proposition 1 of its Section 5.2, where
needed with the corrections that make them true: each function says which.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def logistic_loss(w: Array, x: Array, y: Array) -> Array:
    """Loss of each example, shape (n,)."""
    logits = x @ w
    losses: Array = np.logaddexp(0, logits) - y * logits
    return losses


def input_gradients(w: Array, x: Array, y: Array) -> Array:
    """Gradients of the loss with respect to the inputs, ``(sigma(w.x) - y) w``, shape (n, d)."""
    logits = x @ w
    sigmoid = np.exp(-np.logaddexp(0, -logits))
    return (sigmoid - y)[:, None] * w


def disparity(w: Array, x: Array, other: Array, y: Array) -> float:
    """``E_D l - E_D' l`` on pairs that share label and x_r (Eq. 1); exact for the samples."""
    return float((logistic_loss(w, x, y) - logistic_loss(w, other, y)).mean())


def conditional_distance(x_s: Array, other: Array, y: Array) -> float:
    """``sum_y P(y) W_1(P(x_s | y), P'(x_s | y))`` of scalar samples with common labels, all of shape (n,).

    Without conditioning on the label Theorem 1 is false: environments that swap x_s have the same marginals.
    """
    total = 0.0
    for label in np.unique(y):
        of = y == label
        total += of.mean() * float(np.abs(np.sort(x_s[of]) - np.sort(other[of])).mean())
    return total


# -------------------------------------------------------------------------------------------------- angles


def entanglement(w: Array, spurious: int) -> float:
    """``||w_s|| = ||w|| cos(theta)``."""
    return float(np.linalg.norm(w[-spurious:]))


def spurious_angle(w: Array, spurious: int) -> float:
    """``theta``, between w and ``(0, w_s)``, from 0 to pi/2; pi/2 where w_s is 0."""
    return float(np.arccos(np.clip(entanglement(w, spurious) / np.linalg.norm(w), 0, 1)))


def angle_between(one: Array, other: Array) -> float:
    """``theta'``, from 0 to pi."""
    cosine = one @ other / (np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.arccos(np.clip(cosine, -1, 1)))


def angle_range(shared: Array, own: Array, spurious: int) -> tuple[float, float]:
    """Between which angles ``theta_l`` lies, given ``theta_g`` and ``theta'``."""
    theta, apart = spurious_angle(shared, spurious), angle_between(shared, own)
    return max(0.0, theta - apart), min(np.pi / 2, theta + apart)


# -------------------------------------------------------------------------------------------------- bounds


def disparity_bound(w: Array, spurious: int, distance: float) -> float:
    """Theorem 1: ``|E_D l - E_D' l| <= ||w_s|| W_1``, with the conditional distance."""
    return entanglement(w, spurious) * distance


def deviation_bound(shared: Array, own: Array, spurious: int, distance: float) -> float:
    """Corollary 1 with its last sign corrected: ``|disparity_g - disparity_l|`` by theta_g and theta' alone."""
    theta, apart = spurious_angle(shared, spurious), angle_between(shared, own)
    cosine = np.cos(theta - apart) if apart <= theta else 1.0
    norms = np.linalg.norm(shared) * np.cos(theta) + np.linalg.norm(own) * cosine
    return float(distance * norms)


def local_disparity_bound(shared: Array, own: Array, spurious: int, distance: float) -> float:
    """Corollary 2: ``|E_D l_l - E_D' l_l| <= ||w_l|| cos(max(0, theta_g - theta')) W_1``."""
    theta, apart = spurious_angle(shared, spurious), angle_between(shared, own)
    return float(distance * np.linalg.norm(own) * np.cos(max(0.0, theta - apart)))


# -------------------------------------------------------------------------------------------------- transferability


@dataclass(frozen=True)
class TransferTerms:
    """Terms of Theorem 2, for perturbations ``d = eps grad / ||grad||`` of the shared model, means over examples.

    Attributes:
        shared: S, ``eps E||g_g||``.
        own: ``eps O``, with O the own model's ``E||g_l||``.
        remainder: D, what second and higher orders add to the shared model's loss minus what they add to the own one's.
        transfer_loss: ``E l_gl`` (Eq. 3).
    """

    shared: float
    own: float
    remainder: float
    transfer_loss: float

    @property
    def cosine(self) -> float:
        """``cos(theta') = (S + D - E l_gl) / (eps O)``, an identity.

        The document prints the factor as an addend, the transferability loss with a plus, and an inequality.
        """
        return (self.shared + self.remainder - self.transfer_loss) / self.own

    @property
    def printed(self) -> float:
        """The argument of the arccosine as printed, which mostly is no cosine."""
        return 1 / self.own + self.shared + self.remainder + self.transfer_loss


def transfer_terms(shared: Array, own: Array, x: Array, y: Array, epsilon: float) -> TransferTerms:
    """The terms of Theorem 2 on some examples."""
    g_shared, g_own = input_gradients(shared, x, y), input_gradients(own, x, y)
    norms = np.linalg.norm(g_shared, axis=1)
    moved = epsilon * g_shared / norms[:, None]
    raised = [logistic_loss(w, x + moved, y) - logistic_loss(w, x, y) for w in (shared, own)]
    first = [(g * moved).sum(1) for g in (g_shared, g_own)]
    remainders = [all_ - linear for all_, linear in zip(raised, first, strict=True)]
    return TransferTerms(
        float(epsilon * norms.mean()),
        float(epsilon * np.linalg.norm(g_own, axis=1).mean()),
        float((remainders[0] - remainders[1]).mean()),
        float((raised[0] - raised[1]).mean()),
    )


def safe_angle(terms: TransferTerms, own: Array, epsilon: float) -> float:
    """An upper bound on theta' that needs no remainder, from ``0 <= R_l <= eps^2 ||w_l||^2 / 8``."""
    worst = epsilon**2 * float(own @ own) / 8
    return float(np.arccos(np.clip((terms.shared - worst - terms.transfer_loss) / terms.own, -1, 1)))


def gradient_norm_bound(shared: Array, own: Array, x: Array) -> float:
    """Proposition 1 for gradients with respect to weights, corrected: ``E||x||^2 ||w_l - w_g|| / 4``.

    Printed with ``E||x||`` and the Lipschitz constant, which is false: smoothness is what it takes.
    """
    return float(0.25 * np.square(x).sum(1).mean() * np.linalg.norm(own - shared))


def input_gradient_bound(shared: Array, own: Array, x: Array) -> float:
    """What Theorem 2 needs of Proposition 1: ``(1 + ||w_g|| E||x|| / 4) ||w_l - w_g||`` for gradients of inputs."""
    reach = 1 + 0.25 * np.linalg.norm(shared) * np.linalg.norm(x, axis=1).mean()
    return float(reach * np.linalg.norm(own - shared))
