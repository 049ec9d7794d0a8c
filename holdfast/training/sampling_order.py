"""The order in which a plan's examples are visited: an endless sequence that depends on (seed, plan) alone.

A *pass* is one shuffle of the active set, or as many weighted draws with replacement. Passes follow one another without
end, so an epoch may be a pass (the default), or a fixed number of draws that cycles a small active set and continues a
large one in the next epoch, as Lightning and transformers' Trainer need, which fix the length of an epoch once.

Where a plan names strata, a pass is spread (`stratified_pass`): any stretch of it, so every mini-batch of any size, has
each stratum in proportion. Draws stay without repetition within each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.streams import torch_stream
from holdfast.training.plan import Plan


class SamplingOrder:
    """Positions (or whole mini-batches) in the order in which they are trained on.

    Args:
        plan: what to draw from.
        n: how many examples there are.
        seed: the run's seed.
        since: the optimizer step at which the plan was adopted; it names the random stream.

    Attributes:
        pass_length: how many draws make a pass.
    """

    def __init__(self, plan: Plan, n: int, seed: int, since: int) -> None:
        self._plan = plan
        self._seed = seed
        self._since = since
        self._cached: tuple[int, Tensor] | None = None
        self._cumulative: Tensor | None = None
        if plan.batches is not None:
            self._pool = torch.arange(len(plan.batches)) if plan.batch_order is None else plan.batch_order
        elif plan.copies is None:
            self._pool = torch.arange(n)
        else:
            self._pool = torch.arange(n).repeat_interleave(plan.copies)
        self.pass_length = len(self._pool)
        if plan.sample_weight is not None:
            self._cumulative = plan.sample_weight[self._pool].cumsum(0)

    def take(self, start: int, count: int) -> Tensor:
        """Draws number `start` to `start + count`, int64 of shape (count,)."""
        number, offset = divmod(start, self.pass_length)
        current = self._pass(number)
        if offset + count <= self.pass_length:
            return current[offset : offset + count]
        pieces = [current[offset:]]
        missing = count - len(pieces[0])
        while missing > 0:
            number += 1
            pieces.append(self._pass(number)[:missing])
            missing -= len(pieces[-1])
        return torch.cat(pieces)

    def _pass(self, number: int) -> Tensor:
        if self._cached is None or self._cached[0] != number:
            self._cached = (number, self._draw(torch_stream(self._seed, "draws", self._since, number)))
        return self._cached[1]

    def _draw(self, generator: torch.Generator) -> Tensor:
        size = self.pass_length
        if self._plan.batches is not None:
            if self._plan.batch_order is not None:
                return self._pool
            return torch.randint(size, (size,), generator=generator)
        if self._plan.strata is not None:
            weight = None if self._plan.sample_weight is None else self._plan.sample_weight[self._pool]
            return self._pool[stratified_pass(self._plan.strata[self._pool], weight, generator)]
        if self._cumulative is not None:
            points = torch.rand(size, generator=generator, dtype=torch.float64) * self._cumulative[-1]
            return self._pool[torch.searchsorted(self._cumulative, points, right=True).clamp_(max=size - 1)]
        return self._pool[torch.randperm(size, generator=generator)]


def stratified_pass(strata: Tensor, weights: Tensor | None, generator: torch.Generator) -> Tensor:
    """An order of draws in which every stretch has each stratum in proportion.

    Within a stratum the order is a shuffle. The j-th of its k draws gets the place (j + u) / k, with one random u per
    stratum, and all draws are sorted by their places. So of m draws in a row a stratum of k in n has m k / n, give or
    take less than 1 + (strata) k / n: for strata of equal size each has as many as any other, or one more.

    Args:
        strata: of each candidate, int64 of shape (n,).
        weights: how often each is to come relative to the others, float64 of shape (n,); all once by default. With
            weights each comes as often as is its due, rounded up or down by chance, so no draw is wasted on luck.
        generator: where the order comes from.

    Returns:
        Places among the candidates, int64 of shape (n,).
    """
    n = len(strata)
    drawn = torch.randperm(n, generator=generator)
    if weights is not None:
        drawn = drawn[strata[drawn].argsort(stable=True)]  # strata in one piece each: theirs is rounded by chance, too
        reached = weights[drawn].cumsum(0)
        points = (torch.arange(n) + torch.rand(1, generator=generator, dtype=torch.float64)) * (reached[-1] / n)
        drawn = drawn[torch.searchsorted(reached, points, right=True).clamp_(max=n - 1)]
        drawn = drawn[torch.randperm(n, generator=generator)]
    drawn = drawn[strata[drawn].argsort(stable=True)]
    counts = torch.bincount(strata[drawn])
    rank = torch.arange(n) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    offsets = torch.rand(len(counts), generator=generator, dtype=torch.float64)
    places = (rank + offsets.repeat_interleave(counts)) / counts.repeat_interleave(counts)
    return drawn[places.argsort(stable=True)]
