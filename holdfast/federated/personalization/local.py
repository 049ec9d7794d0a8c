"""Training alone: the personal models that every other method has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import AlongsidePersonalizer


@dataclass(frozen=True)
class Local(AlongsidePersonalizer):
    """Training alone: Ditto with lambda 0, with the same participation and the same steps."""

    name: ClassVar[str] = "local"

    @property
    def uses_local(self) -> bool:
        """No: it looks at nobody."""
        return False

    def update(self, rows: Tensor, gradient: Tensor, batch: ClientBatch, local: Tensor, stack: StackedClients) -> None:
        """``v <- v - eta g``."""
        stack.descend(rows, gradient, stack.personal_rate)
