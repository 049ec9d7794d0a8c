"""When SGD on mini-batch coresets converges, and how large the tolerance may be (Theorem 2.3.1), as functions.

CREST (https://arxiv.org/abs/2306.01244), with the numbering of Chapter 2 of
https://escholarship.org/uc/item/0399v1qw. Delta is the loss at the start minus its infimum, L the smoothness, sigma^2
the variance of single gradients, r the size of the subsets that mini-batches stand for.

The theorem needs the gradient of the modelled loss to be off the true one by less than that one's length. It bounds by
how much it is off by rho, the relative error of the loss, and the distance from the choice: `gradient_gap`. That step
holds where the error of the model grows like the square of the distance, as a wrong curvature does, and there with
equality; an error that grows with its cube is steeper than that (the tests show both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.errors import ConfigError


def gradient_gap(rho: float, loss: float, distance: float, coreset_error: float = 0.0) -> float:
    """2 rho L / |delta| + 3 c: by how much the gradient of the modelled loss may be off at a distance from the choice.

    Args:
        rho: relative error of the modelled loss there.
        loss: the true loss there.
        distance: |delta|, how far the weights have gone since the choice.
        coreset_error: c, by how much the coreset's gradient was off at the choice.

    Raises:
        ConfigError: if the distance is not positive.
    """
    if not distance > 0:
        raise ConfigError(f"the distance from the choice is {distance}; it must be positive")
    return 2 * rho * loss / distance + 3 * coreset_error


def largest_tolerance(
    gradients: Sequence[float],
    anchors: Sequence[float],
    distances: Sequence[float],
    losses: Sequence[float],
    epsilon: float,
) -> float:
    """Tau <= min over regions of (|grad L(w + delta)| - 3 eps |grad L(w)|) |delta| / (2 L(w + delta)).

    Args:
        gradients: of each region, |grad L| at its far end.
        anchors: |grad L| at its point of choice.
        distances: |delta| between the two.
        losses: the loss at its far end, positive.
        epsilon: the coreset's error at the choice as a share of |grad L| there.

    Returns:
        The largest tolerance that the theorem allows; 0 or less where it allows none.

    Raises:
        ConfigError: if there are no regions, or a loss is not positive.
    """
    regions = list(zip(gradients, anchors, distances, losses, strict=True))
    if not regions or min(losses) <= 0:
        raise ConfigError("the tolerance is bounded over regions with positive losses; give one at least")
    return min((end - 3 * epsilon * start) * way / (2 * loss) for end, start, way, loss in regions)


def stationarity_bound(steps: int, size: int, *, smoothness: float, excess: float, sigma: float) -> float:
    """2 L Delta / N + 2 sigma sqrt(2 L Delta / (r N)): the mean of |grad L|^2 over N steps, for gradients without bias.

    Args:
        steps: N.
        size: r, of the subsets; m for random mini-batches of m.
        smoothness: L.
        excess: Delta.
        sigma: standard deviation of single gradients.
    """
    common = smoothness * excess
    return 2 * common / steps + 2 * sigma * math.sqrt(2 * common / (size * steps))


def step_length(steps: int, size: int, *, smoothness: float, excess: float, sigma: float) -> float:
    """min(1 / L, sqrt(2 Delta r / (L sigma^2 N))): the rate at which `stationarity_bound` holds."""
    if sigma == 0:
        return 1 / smoothness
    return min(1 / smoothness, math.sqrt(2 * excess * size / (smoothness * sigma**2 * steps)))
