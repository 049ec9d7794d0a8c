"""What server and nodes build a federation from, each on its own, out of the same configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.personalization import Personalizer
from holdfast.federated.personalization.base import PostHocPersonalizer
from holdfast.federated.settings import Rounds


@dataclass(frozen=True, eq=False)
class Blueprint:
    """What a federation is built from.

    Attributes:
        options: the configuration that says all of this, plain values.
        settings: rounds, cohort, local work, seed.
        objective: what the shared model is trained for.
        aggregator: how the server combines what clients send.
        threat: an attack that is rehearsed, where one is.
        personalize: personalization methods.
        load: reads the data set that the configuration names; for nodes that have no data of their own.
        build: makes the network for inputs of a shape and a number of outputs, with the weights to start from.
    """

    options: Mapping[str, Any]
    settings: Rounds
    objective: FederatedObjective
    aggregator: Aggregator
    threat: Threat | None
    personalize: Sequence[Personalizer]
    load: Callable[[], Clients]
    build: Callable[[tuple[int, ...], int], nn.Module]

    def check(self) -> Blueprint:
        """This blueprint, if it can run where nobody sees all clients.

        Raises:
            ConfigError: if a method chooses something for all clients by looking at all of their models.
        """
        for method in self.personalize:
            if (
                isinstance(method, PostHocPersonalizer)
                and type(method).choose_hyperparameters is not PostHocPersonalizer.choose_hyperparameters
            ):
                raise ConfigError(
                    f"{method.name} looks at all clients' personal models to choose what they share, and on Flower no "
                    "one sees them; run it in the simulator, or take another method"
                )
        return self

    def model(self, clients: Clients) -> nn.Module:
        """The network for these clients."""
        return self.build(clients.input_shape, 1 if clients.task == "margin" else clients.classes)
