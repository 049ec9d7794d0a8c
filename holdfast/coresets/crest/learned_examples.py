"""Which examples are learned: those whose loss stayed small every time it was computed.

Only losses of random subsets are computed, so an example counts as learned after a few of them within a window, none
above the threshold. What is dropped stays dropped, and enough of every class is kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LossWatch:
    """Watches losses over a window and drops what is learned at its end.

    Args:
        n: how many examples there are.

    Attributes:
        pool: which examples are left, bool of shape (n,).
    """

    def __init__(self, n: int) -> None:
        self.pool = torch.ones(n, dtype=torch.bool)
        self._clear()

    def record(self, positions: Tensor, losses: Tensor) -> None:
        """Remember the losses of some examples, each at most once among `positions`."""
        self._sightings[positions] += 1
        self._largest[positions] = torch.maximum(self._largest[positions], losses)

    def close_window(
        self,
        labels: Tensor,
        *,
        threshold: float,
        active: Tensor | None = None,
        sightings: int = 2,
        fewest: int = 0,
        fewest_of_class: int = 0,
    ) -> int:
        """Drop what is learned and start the next window.

        Args:
            labels: class of each example, int64 of shape (n,).
            threshold: largest loss of a learned example.
            active: which examples there are to train on, all by default; others don't count as left. Bool, shape (n,).
            sightings: how often it must have been seen in the window.
            fewest: how many examples stay at least; otherwise all do that were there.
            fewest_of_class: how many of each class stay at least; a class that would fall below keeps what it had.

        Returns:
            How many examples were dropped.
        """
        learned = (self._sightings >= sightings) & (self._largest <= threshold)
        left = self.pool & ~learned
        there = torch.ones_like(left) if active is None else active
        short = torch.bincount(labels[left & there], minlength=int(labels.max()) + 1) < fewest_of_class
        left |= self.pool & short[labels]
        if int((left & there).sum()) < fewest:
            left = self.pool.clone()
        dropped = int(self.pool.sum() - left.sum())
        self.pool = left
        self._clear()
        return dropped

    def state_dict(self) -> dict[str, Any]:
        """The pool and the window so far."""
        return {"pool": self.pool, "seen": self._sightings, "largest": self._largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.pool, self._sightings, self._largest = state["pool"], state["seen"], state["largest"]

    def _clear(self) -> None:
        self._sightings = torch.zeros(len(self.pool), dtype=torch.int32)
        self._largest = torch.full((len(self.pool),), -torch.inf)
