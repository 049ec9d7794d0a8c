"""FedBN: batch normalisation is each client's own (Li et al., ICLR 2021, https://arxiv.org/abs/2102.07623).

Clients whose inputs look different (other cameras, other sensors) need other statistics. Both the parameters and the
running statistics stay with the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from holdfast.federated.personalization.partial.base import PartlyLocal
from holdfast.federated.personalization.partial.parts import columns_of_batch_norm

if TYPE_CHECKING:
    from holdfast.federated.engine.network import Network


@dataclass(frozen=True)
class FedBn(PartlyLocal):
    """Everything is averaged but batch normalisation."""

    name: ClassVar[str] = "fedbn"

    def columns(self, network: Network) -> Tensor:
        """Those of scales, shifts, running means and running variances."""
        return columns_of_batch_norm(network, self.name)
