"""FedPer: the last layers are each client's own (Arivazhagan et al., 2019, https://arxiv.org/abs/1912.00818)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from holdfast.federated.personalization.partial.base import PartlyLocal
from holdfast.federated.personalization.partial.parts import HEAD, columns_of_layers

if TYPE_CHECKING:
    from holdfast.federated.engine.network import Network


@dataclass(frozen=True)
class FedPer(PartlyLocal):
    """Base layers are averaged, personalization layers are not; a client trains both together.

    Attributes:
        layers: names of what stays with the client, modules or parameters; `head` is the last linear layer.
    """

    name: ClassVar[str] = "fedper"
    layers: tuple[str, ...] = (HEAD,)

    def columns(self, network: Network) -> Tensor:
        """Those of the named layers."""
        return columns_of_layers(network, self.layers, self.name)
