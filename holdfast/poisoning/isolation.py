"""Examples that stand alone in gradient space: medoids that no other example is nearest to.

An effective poison must pull the model towards its target, so its gradient leaves those of its class and of the other
poisons early in training. In each class the k medoids of gradients are chosen greedily; one whose cluster is itself
only is isolated. Isolation isn't loss: thirty examples that are wrong in the same way are near one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.primitives.facility_location import Method, facility_location
from holdfast.primitives.similarity import Geometry, LastLayerGradients, Metric, Points

#: What stands for an example's gradient: with respect to the logits, p - y; to the input of the last layer, W'(p - y);
#: or to the last layer, by its factors.
Proxy = Literal["logits", "last-input", "last-layer"]


@dataclass(frozen=True, eq=False)
class Medoids:
    """Medoids of all classes, and how many examples are nearest to each.

    Attributes:
        positions: of the medoids, int64 of shape (k,).
        classes: of the medoids, int64 of shape (k,).
        sizes: examples nearest to each, itself included, int64 of shape (k,). A copy of an earlier medoid has 0.
    """

    positions: Tensor
    classes: Tensor
    sizes: Tensor

    def isolated(self, largest: int = 1) -> Tensor:
        """Which medoids have a cluster of at most `largest`, but at least themselves; bool of shape (k,)."""
        return (self.sizes >= 1) & (self.sizes <= largest)


def gradient_geometry(
    residuals: Tensor, proxy: Proxy, *, features: Tensor | None = None, head: Tensor | None = None
) -> Geometry:
    """Gradients of examples as points that have distances.

    Args:
        residuals: softmax minus one-hot, shape (n, C).
        proxy: which gradient.
        features: inputs of the last layer, shape (n, d), for ``last-layer``.
        head: weights of the last layer, shape (C, d), for ``last-input``.

    Raises:
        ConfigError: if what the proxy needs is missing.
    """
    if proxy == "last-layer":
        if features is None:
            raise ConfigError("gradients of the last layer need its inputs")
        return LastLayerGradients(residuals, features)
    if proxy == "last-input":
        if head is None:
            raise ConfigError("gradients of the last layer's inputs need its weights")
        return Points(residuals @ head)
    return Points(residuals)


def class_budgets(sizes: Tensor, fraction: float, *, equal: bool = False, stream: torch.Generator) -> list[int]:
    """How many medoids each class gets.

    In all there are floor(fraction x n). A class gets its share of them rounded up, and random classes give one back
    until the sum is right. Every class keeps one that is no medoid, so that none is dropped whole.

    Args:
        sizes: examples of each class, int64 of shape (C,).
        fraction: of the examples to be medoids.
        equal: the same number for all classes, instead of shares by size.
        stream: decides who gives back.
    """
    n = int(sizes.sum())
    total = int(fraction * n)
    if equal:
        shares = torch.full_like(sizes, total // max(1, int((sizes > 0).sum())))
    else:
        shares = torch.ceil(sizes.double() / n * total).long()
        surplus = int(shares.sum()) - total
        givers = (shares > 0).nonzero().flatten()
        shares[givers[torch.randperm(len(givers), generator=stream)[:surplus]]] -= 1
    return torch.minimum(shares, (sizes - 1).clamp(min=0)).tolist()


def gradient_medoids(
    gradients: Tensor | Geometry,
    labels: Tensor,
    fraction: float,
    *,
    stream: torch.Generator,
    pool: Tensor | None = None,
    metric: Metric = "euclidean",
    equal: bool = False,
    stochastic: bool = False,
) -> Medoids:
    """Choose medoids in each class by greedy facility location.

    Args:
        gradients: of all examples, shape (n, d), or anything that has distances.
        labels: of all examples, int64 of shape (n,).
        fraction: of the pool to be medoids, between 0 and 1.
        stream: decides which classes give back what rounding gave them, and what stochastic greedy looks at.
        pool: positions of the examples to choose from and to cluster; all by default.
        metric: ``euclidean``, ``exponential`` (exp(-distance / dimensions)) or ``cosine``.
        equal: as many medoids in every class.
        stochastic: look at a random sample of candidates for each medoid, which is faster in classes of many thousands.

    Returns:
        The medoids, one class after the other. Classes with fewer than two examples have none.

    Raises:
        ConfigError: if the fraction is not between 0 and 1.
        DataError: if shapes disagree.
    """
    if not 0 < fraction < 1:
        raise ConfigError(f"the fraction of medoids is {fraction}; give a number between 0 and 1")
    geometry: Geometry = Points(gradients) if isinstance(gradients, Tensor) else gradients
    if labels.shape != (len(geometry),):
        raise DataError(f"there are {len(geometry)} gradients and labels of shape {tuple(labels.shape)}")
    pool = torch.arange(len(labels)) if pool is None else pool
    own = labels[pool]
    sizes = torch.bincount(own)
    budgets = class_budgets(sizes, fraction, equal=equal, stream=stream)
    classes = [label for label, budget in enumerate(budgets) if budget > 0]
    if not classes:
        empty = torch.empty(0, dtype=torch.int64)
        return Medoids(empty, empty, empty)
    parts, shares = [pool[own == label] for label in classes], [budgets[label] for label in classes]
    method: Method = "stochastic" if stochastic else "greedy"
    exemplars = facility_location(geometry, shares, parts=parts, metric=metric, method=method, stream=stream)
    return Medoids(
        torch.cat([one.chosen for one in exemplars]),
        torch.tensor(classes).repeat_interleave(torch.tensor(shares)),
        torch.cat([one.weights for one in exemplars]).round().long(),
    )
