"""The order in which a plan's examples are visited: an endless sequence that depends on (seed, plan) alone.

A *pass* is one shuffle of the active set, or as many weighted draws with replacement. Passes follow one another without
end, so an epoch may be a pass (the default), or a fixed number of draws that cycles a small active set and continues a
large one in the next epoch, as Lightning and transformers' Trainer need, which fix the length of an epoch once.
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
    """

    def __init__(self, plan: Plan, n: int, seed: int, since: int) -> None:
        self._plan = plan
        self._seed = seed
        self._since = since
        self._cached: tuple[int, Tensor] | None = None
        self._cumulative: Tensor | None = None
        if plan.batches is not None:
            self._pool = torch.arange(len(plan.batches))
        elif plan.copies is None:
            self._pool = torch.arange(n)
        else:
            self._pool = torch.arange(n).repeat_interleave(plan.copies)
        if plan.sample_weight is not None:
            self._cumulative = plan.sample_weight[self._pool].cumsum(0)

    @property
    def pass_length(self) -> int:
        """How many draws make a pass."""
        return len(self._pool)

    def take(self, start: int, count: int) -> Tensor:
        """Draws number `start` to `start + count`, int64 of shape (count,)."""
        number, offset = divmod(start, len(self._pool))
        current = self._pass(number)
        if offset + count <= len(current):
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
        size = len(self._pool)
        if self._plan.batches is not None:
            return torch.randint(size, (size,), generator=generator)
        if self._cumulative is not None:
            points = torch.rand(size, generator=generator, dtype=torch.float64) * self._cumulative[-1]
            return self._pool[torch.searchsorted(self._cumulative, points, right=True).clamp_(max=size - 1)]
        return self._pool[torch.randperm(size, generator=generator)]
