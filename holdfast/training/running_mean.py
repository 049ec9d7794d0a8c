"""The mean loss of an epoch, without a step that waits for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_AT_ONCE = 256


class RunningMean:
    """Mean of losses weighted by batch size; kept on the device and added up rarely, so that no step waits for it.

    Args:
        total: sum of loss x size so far.
        count: examples so far.

    Attributes:
        count: examples so far.
    """

    def __init__(self, total: float = 0.0, count: int = 0) -> None:
        self.count = count
        self._total = total
        self._pending: list[Tensor] = []
        self._sizes: list[int] = []

    def add(self, loss: Tensor, size: int) -> None:
        """Count a mini-batch of `size` examples whose mean loss is `loss`."""
        self._pending.append(loss.detach())
        self._sizes.append(size)
        self.count += size
        if len(self._pending) == _AT_ONCE:
            self._settle()

    def mean(self) -> float:
        """The mean so far, 0 of nothing."""
        self._settle()
        return self._total / max(self.count, 1)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        self._settle()
        return {"total": self._total, "count": self.count}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> RunningMean:
        """What `state_dict` was taken of; both entries must be there."""
        return cls(state["total"], state["count"])

    def _settle(self) -> None:
        if self._pending:
            values = torch.stack(self._pending).to("cpu", torch.float64)
            for value, size in zip(values.tolist(), self._sizes, strict=True):
                self._total += value * size
            self._pending.clear()
            self._sizes.clear()
