"""Mini-batch coresets: from each of many random subsets, a mini-batch whose weighted gradient is the subset's.

A random subset of r examples has an unbiased gradient with r / m times less variance than a mini-batch of m. Medoids of
its gradients, weighed by the sizes of their clusters, come near that gradient with m examples: it is off by at most
the mean distance of an example to its medoid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.data.apportionment import apportion
from holdfast.errors import ConfigError
from holdfast.primitives.facility_location import Exemplars, facility_location
from holdfast.primitives.similarity import LastLayerGradients, Metric

#: Of a class in a subset: with fewer it is drawn from together with others. Rounded to whole places, always the same
#: way, a small class would be in every subset too often or in none.
_FEWEST_PLACES = 10


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """A weighted mini-batch that stands for a subset.

    Attributes:
        chosen: places in the subset, int64 of shape (m,).
        weights: of those in the loss, float32 of shape (m,), with mean one.
    """

    chosen: Tensor
    weights: Tensor


class SubsetCandidates:
    """Examples that random subsets are drawn from, split by class once for all draws.

    Args:
        positions: of the examples, int64.
        labels: class of each example of the whole set.
        by_class: draw from each class in proportion, instead of from all alike.
        visits: how often each of `positions` is to come relative to the others, float64; all alike by default. Subsets
            are drawn with repetition where some are to come more often.
    """

    def __init__(self, positions: Tensor, labels: Tensor, *, by_class: bool, visits: Tensor | None = None) -> None:
        visits = torch.ones(len(positions), dtype=torch.float64) if visits is None else visits
        self._alike = bool((visits == visits[0]).all())
        self._strata, self._visits = [positions], [visits]
        if by_class:
            present = labels[positions]
            order, counts = present.argsort(stable=True), [count for count in torch.bincount(present).tolist() if count]
            self._strata, self._visits = (list(torch.split(one[order], counts)) for one in (positions, visits))
        self._masses = np.array([float(part.sum()) for part in self._visits])

    def draw(self, size: int, stream: torch.Generator) -> Tensor:
        """Positions of a random subset, int64 of shape (size,), without repetition where all are to come alike.

        Args:
            size: how many, at most all.
            stream: where the draws come from.
        """
        parts = self._parts(size)
        shares = apportion(size, np.array([self._masses[part].sum() for part in parts]))
        return torch.cat([self._some(part, int(share), stream) for part, share in zip(parts, shares, strict=True)])

    def _parts(self, size: int) -> list[list[int]]:
        """Strata that are drawn from by themselves, in order, and then those that are drawn from together."""
        rising = np.argsort(self._masses, kind="stable")
        places = size * self._masses[rising] / self._masses.sum()
        together = int(np.searchsorted(places, _FEWEST_PLACES))
        while 0 < together < len(rising) and places[:together].sum() < _FEWEST_PLACES:
            together += 1
        alone, small = sorted(rising[together:].tolist()), sorted(rising[:together].tolist())
        return [[stratum] for stratum in alone] + ([small] if small else [])

    def _some(self, part: list[int], count: int, stream: torch.Generator) -> Tensor:
        positions = torch.cat([self._strata[stratum] for stratum in part])
        if self._alike:
            return positions[torch.randperm(len(positions), generator=stream)[:count]]
        reached = torch.cat([self._visits[stratum] for stratum in part]).cumsum(0)
        points = torch.rand(count, generator=stream, dtype=torch.float64) * reached[-1]
        return positions[torch.searchsorted(reached, points, right=True).clamp_(max=len(positions) - 1)]


def quotas(counts: Tensor, total: int) -> list[int]:
    """How many of a mini-batch each class gets: in proportion, exactly `total`, and one at least where it is there.

    Args:
        counts: examples of each class, int64 of shape (classes,).
        total: the size of the mini-batch, at most the sum of the counts.

    Returns:
        A number per class, none above its count.

    Example:
        >>> import torch
        >>> quotas(torch.tensor([60, 38, 0, 2]), 10)
        [5, 4, 0, 1]
    """
    shares = apportion(total, counts.numpy().astype(np.float64))
    for label in np.flatnonzero((shares == 0) & (counts.numpy() > 0)):
        donor = int(shares.argmax())
        if shares[donor] > 1:
            shares[donor] -= 1
            shares[label] += 1
    return [int(share) for share in shares]


def mini_batch_coresets(
    proxies: Tensor | LastLayerGradients,
    labels: Tensor,
    subsets: int,
    size: int,
    *,
    by_class: bool = True,
    metric: Metric = "euclidean",
) -> list[MiniBatch]:
    """Choose a mini-batch from each of several subsets of equal size, in one go.

    Args:
        proxies: of the examples of all subsets, one subset after the other.
        labels: class of those, int64 of shape (subsets x r,).
        subsets: how many subsets there are.
        size: m, how many examples a mini-batch has.
        by_class: choose within each class of a subset, in proportion; from all of them alike in a subset of more
            classes than a mini-batch has places.
        metric: how distances become similarities.

    Returns:
        A mini-batch per subset.

    Raises:
        ConfigError: if a mini-batch is larger than a subset.
    """
    r = len(proxies) // subsets
    if not 1 <= size <= r:
        raise ConfigError(f"a mini-batch of {size} can't be chosen from a subset of {r}; give at most as many")
    parts, budgets, owners = list[Tensor](), list[int](), list[int]()
    for subset in range(subsets):
        places = torch.arange(subset * r, (subset + 1) * r)
        counts = torch.bincount(labels[places])
        if not by_class or int(counts.count_nonzero()) > size:
            parts.append(places)
            budgets.append(size)
            owners.append(subset)
            continue
        here = labels[places]
        for label, budget in enumerate(quotas(counts, size)):
            if budget:
                parts.append(places[here == label])
                budgets.append(budget)
                owners.append(subset)
    exemplars = facility_location(proxies, budgets, parts=parts, metric=metric)
    return [
        _mini_batch([one for one, owner in zip(exemplars, owners, strict=True) if owner == subset], subset * r)
        for subset in range(subsets)
    ]


def cluster_weights(sizes: Tensor) -> Tensor:
    """Loss weights with mean one from what each exemplar stands for; a copy of another one stands for itself."""
    sizes = sizes.clamp_min(1)
    # Not n / sum alone: with mean one a mini-batch of m weighted examples moves the weights as far as a plain one does,
    # so that the learning rate of plain training holds.
    return (sizes * (len(sizes) / sizes.sum())).to(torch.float32)


def _mini_batch(parts: list[Exemplars], first: int) -> MiniBatch:
    chosen = torch.cat([part.chosen for part in parts])
    return MiniBatch(chosen - first, cluster_weights(torch.cat([part.weights for part in parts])))
