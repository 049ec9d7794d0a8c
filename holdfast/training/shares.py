"""How the processes divide a step's mini-batch, and how what each makes of its share becomes one batch again.

A step sees the same examples however many processes there are: process r forwards the places r, r + n, r + 2n, ... of
the mini-batch. Where that leaves a process less than two examples, it forwards others of the mini-batch besides, which
don't count, since batch norm can't train on one.

In a loop of one's own, DistributedDataParallel takes the mean of the processes' gradients, and ``(weight *
losses).mean()`` of a share must add up to the mean over the whole mini-batch, also where shares are uneven. So the
weights of a share are scaled by (processes x share) / mini-batch, and are 0 for what doesn't count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.training.ranks import Ranks, lost_processes_named

#: The fewest examples that batch norm can train on.
_FEWEST = 2


@dataclass(frozen=True, eq=False)
class Share:
    """A process's part of a mini-batch.

    Attributes:
        ranks: the processes that share it.
        size: examples in the mini-batch.
        places: of those that this process forwards, int64; the first `counted` are its own, the rest fill up.
        counted: how many are its own.
    """

    ranks: Ranks
    size: int
    places: Tensor
    counted: int

    @classmethod
    def of(cls, size: int, ranks: Ranks) -> Share:
        """The share of this process in a mini-batch of `size`."""
        own = list(range(ranks.index, size, ranks.count))
        others = [(ranks.index + step) % size for step in range(size)]
        fill = [place for place in others if place not in own] if len(own) < _FEWEST else []
        places = own + fill[: _FEWEST - len(own)]
        return cls(ranks, size, torch.tensor(places, dtype=torch.int64), len(own))

    def weigh(self, weights: Tensor) -> Tensor:
        """The share's weights, of those of the mini-batch, for a mean over the share and then over the processes."""
        scaled = weights[self.places] * (self.ranks.count * len(self.places) / self.size)
        scaled[self.counted :] = 0
        return scaled

    def part_sizes(self, parts: int, size: int) -> list[int]:
        """The share in parts of about `size`, at most `parts`, and as many in every process."""
        largest, smallest = -(-self.size // self.ranks.count), self.size // self.ranks.count
        count = max(min(parts, -(-largest // size), smallest), 1)
        whole, rest = divmod(len(self.places), count)
        return [whole + (place < rest) for place in range(count)]

    def gather(self, values: Tensor) -> Tensor:
        """What all processes made of their shares, in the order of the mini-batch.

        Gradients flow back into this process's part only, times the number of processes: so the mean of the processes'
        gradients is the gradient of the loss of the whole mini-batch, which every process computes alike.

        Args:
            values: a row for each of `places`.

        Returns:
            A row for each of the `size` examples, the same in all processes.
        """
        gathered: Tensor = _Gather.apply(values, self)  # type: ignore[no-untyped-call]
        return gathered

    def collect(self, values: Tensor) -> Tensor:
        """As `gather`, without gradients."""
        count, width = self.ranks.count, max(-(-self.size // self.ranks.count), min(_FEWEST, self.size))
        padded = values.new_zeros(width, *values.shape[1:])
        padded[: len(values)] = values
        parts = [torch.empty_like(padded) for _ in range(count)]
        with lost_processes_named(self.ranks):
            dist.all_gather(parts, padded, group=self.ranks.group if values.device.type == "cpu" else None)
        places = torch.arange(self.size)
        return torch.cat(parts)[(places % count * width + places // count).to(values.device)]


class _Gather(torch.autograd.Function):
    """`Share.gather`, forwards and backwards; the way back needs no message."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, share: Share) -> Tensor:
        ctx.share = share
        return share.collect(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), share = gradients, ctx.share
        mine = gradient.new_zeros(len(share.places), *gradient.shape[1:])
        own = share.places[: share.counted].to(gradient.device)
        mine[: share.counted] = gradient[own] * share.ranks.count
        return mine, None
