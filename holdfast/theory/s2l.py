r"""What equal trajectories say about gradients (Section 3.3), as functions to compute both sides of each bound.

S2L (https://arxiv.org/abs/2403.07384), with the numbering of Chapter 3 of https://escholarship.org/uc/item/0399v1qw.
Losses of a target near its pretrained weights are modelled per example as l_i(d) = c_i + g_i.d + d.H_i d / 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Losses of several examples as functions of the distance d from the pretrained weights.

    Attributes:
        curvature: H_i, symmetric, shape (n, p, p).
        gradients: g_i, shape (n, p).
        constants: c_i, shape (n,).
    """

    curvature: Floats
    gradients: Floats
    constants: Floats

    def losses(self, path: Floats) -> Floats:
        """At the points of a path (T, p): shape (n, T)."""
        bent = np.einsum("tp,npq,tq->nt", path, self.curvature, path)
        losses: Floats = self.constants[:, None] + self.gradients @ path.T + bent / 2
        return losses


def target_distance(proxy: float, transfer: float) -> float:
    """Epsilon' = epsilon + 2 delta: how far apart two trajectories of a target are at most.

    Args:
        proxy: epsilon, their distance on the proxy.
        transfer: delta, the distance of each example's proxy and target trajectory.
    """
    return proxy + 2 * transfer


def directional_bound(distance: float, curvature: float, radius: float) -> float:
    r"""2 epsilon' + 2 C D^2, a bound on \\|(g_i - g_j).(d1 - d2)\\| for any two points of the path.

    This is what the proof of Theorem 3.3.1 gives; `norm_bound` is what the theorem states. With equal curvatures,
    2 epsilon' suffices.

    Args:
        distance: epsilon', of the target trajectories.
        curvature: C, the largest norm of a curvature; 0 where all are equal.
        radius: D, of the path.
    """
    return 2 * distance + 2 * curvature * radius**2


def norm_bound(distance: float, curvature: float, radius: float, shortest: float) -> float:
    """(2 epsilon' + 2 C D^2) / d_min, which Theorem 3.3.1 states as a bound on the norm of g_i - g_j.

    It is none: a difference at a right angle to the path never shows in the losses, so it can be of any length.

    Args:
        distance: epsilon', of the target trajectories.
        curvature: C, the largest norm of a curvature.
        radius: D, of the path.
        shortest: d_min, the least distance of two points of the path.
    """
    return directional_bound(distance, curvature, radius) / shortest


def subset_gradient(gradients: Floats, picks: Ints, labels: Ints, per_cluster: int) -> Floats:
    """The gradient of `per_cluster` picks of each cluster, each weighed by the smallest cluster's size over that."""
    smallest = np.bincount(labels).min()
    gradient: Floats = gradients[picks].sum(0) * (smallest / per_cluster)
    return gradient


def subset_gradient_bound(gradients: Floats, labels: Ints) -> float:
    """Xi = K (r_min Delta + (r_max - r_min) g_max), by which the gradient of a subset differs at most from that of all.

    Args:
        gradients: shape (n, p).
        labels: cluster of each example, from 0, none empty.
    """
    sizes = np.bincount(labels)
    if sizes.min() < 1:
        raise ConfigError("a cluster is empty; number clusters from 0 without gaps")
    apart = 0.0
    for cluster in range(len(sizes)):
        own = gradients[labels == cluster]
        apart = max(apart, float(np.linalg.norm(own[:, None] - own, axis=2).max()))
    longest = float(np.linalg.norm(gradients, axis=1).max())
    return float(len(sizes) * (sizes.min() * apart + (sizes.max() - sizes.min()) * longest))


def convergence_bound(
    step: int,
    start: float,
    *,
    rate: float,
    convexity: float,
    error: float,
    picks: int,
    weight: float,
    longest: float,
) -> float:
    """Corollary 3.3.2: how far incremental gradient steps on the subset are from the optimum of all, squared.

    (1 - alpha c)^(t+1) d_0^2 + 2 xi R / c^2 + alpha B^2 w^2 g_max^2, with R = min(d_0, B g_max + xi / c). The first
    term is printed with the distance at step t, which the exponent contradicts; it is the distance at the start.

    Args:
        step: t + 1, passes over the subset.
        start: d_0, distance at the start.
        rate: alpha, at most 1 / c.
        convexity: c.
        error: xi, of the subset's gradient.
        picks: B, size of the subset.
        weight: w = r_min / k of each pick.
        longest: g_max.
    """
    reach = min(start, picks * longest + error / convexity)
    return (
        (1 - rate * convexity) ** step * start**2
        + 2 * error * reach / convexity**2
        + rate * (picks * weight * longest) ** 2
    )
