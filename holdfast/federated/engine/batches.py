"""Which examples a client sees next: a pure function of (seed, client, how many batches it has drawn).

Every client walks through a shuffled copy of its training set, a batch at a time, round after round. The incomplete
tail is left out and the set is shuffled again, so another tail is left out next time. Without shuffling a walk goes on
where the last one ended, from the last example to the first, so that every example has its turn. A client with fewer
examples than a batch uses all of them. Because
nothing but the number of batches drawn is remembered, methods that are compared see the same draws, and a resumed
federation goes on as if nothing had happened.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.streams import torch_stream


@dataclass(frozen=True)
class BatchStream:
    """The endless sequence of a client's mini-batches.

    Attributes:
        seed: of the federation.
        size: examples per batch.
        shuffle: whether the order is random; in order otherwise.
    """

    seed: int
    size: int
    shuffle: bool = True

    def per_pass(self, examples: int) -> int:
        """Batches in one walk through `examples` examples."""
        return max(examples // self.size, 1)

    def rows(self, client: int, examples: int, first: int, count: int) -> Tensor:
        """Positions of the examples in `count` batches from number `first` on, shape (count, examples per batch)."""
        per_pass, size = self.per_pass(examples), min(self.size, examples)
        passes = range(first // per_pass, (first + count - 1) // per_pass + 1)
        order = torch.cat([self._order(client, examples, number)[: per_pass * size] for number in passes])
        skipped = first - passes[0] * per_pass
        return order.view(-1, size)[skipped : skipped + count]

    def _order(self, client: int, examples: int, number: int) -> Tensor:
        if not self.shuffle:
            return (torch.arange(examples) + number * self.per_pass(examples) * min(self.size, examples)) % examples
        return torch.randperm(examples, generator=torch_stream(self.seed, "batches", client, number))


def pad(batches: list[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Uneven batches of several clients as one table.

    Args:
        batches: for each client, row numbers of shape (number of its batches, size of its batches).
        width: examples per batch to pad to.

    Returns:
        Row numbers of shape (clients, most batches, width), padded with rows of the same client, and weights of shape
        (clients, width): one over the size of the client's batches, zero for the padding, float64.
    """
    longest = max(len(batch) for batch in batches)
    if all(batch.shape == (longest, width) for batch in batches):
        return torch.stack(batches), torch.full((len(batches), width), 1 / width, dtype=torch.float64)
    table = torch.stack([_padded(batch, longest, width) for batch in batches])
    real = torch.tensor([batch.shape[1] for batch in batches])
    weights = (torch.arange(width) < real[:, None]) / real[:, None].double()
    return table, weights


def _padded(batch: Tensor, count: int, width: int) -> Tensor:
    full = batch[:1, :1].repeat(count, width)
    full[: batch.shape[0], : batch.shape[1]] = batch
    return full
