"""What a federation is built from, by the simulator or by a server and its nodes, out of the same configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from holdfast.data.clients.clients import Clients
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.expectation import Expectation
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.personalization import Personalizer
from holdfast.federated.preparation import PreparedFederation, assemble, prepare
from holdfast.federated.server.optimizers import ServerOptimizer
from holdfast.federated.server.privacy import ClientPrivacy
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
        expectation: how many malicious clients the server defends itself against.
        load: reads the data set that the configuration names; for nodes that have no data of their own.
        build: makes the network for inputs of a shape and a number of outputs, with the weights to start from.
        server_optimizer: how the server's model moves, where it isn't by the aggregate itself.
        privacy: how clients are hidden in noise, where they are.
    """

    options: Mapping[str, Any]
    settings: Rounds
    objective: FederatedObjective
    aggregator: Aggregator
    threat: Threat | None
    personalize: Sequence[Personalizer]
    expectation: Expectation
    load: Callable[[], Clients]
    build: Callable[[tuple[int, ...], int], nn.Module]
    server_optimizer: ServerOptimizer | None = None
    privacy: ClientPrivacy | None = None

    def model(self, clients: Clients) -> nn.Module:
        """The network for these clients."""
        return self.build(clients.input_shape, clients.outputs)

    def prepare(
        self, clients: Clients, settings: Rounds | None = None, *, model: nn.Module | None = None
    ) -> PreparedFederation:
        """The federation of these clients, if everything goes together.

        Args:
            clients: their data.
            settings: others than the blueprint's, where they are given.
            model: the network, where it is made already.
        """
        return prepare(
            clients,
            model or self.model(clients),
            settings or self.settings,
            objective=self.objective,
            aggregator=self.aggregator,
            threat=self.threat,
            personalize=self.personalize,
            expect_malicious=self.expectation,
            server_optimizer=self.server_optimizer,
            privacy=self.privacy,
        )

    def assemble(self, clients: Clients) -> PreparedFederation:
        """The same without the check, for a node, which has the data of some clients only."""
        return assemble(
            clients,
            self.model(clients),
            self.settings,
            objective=self.objective,
            aggregator=self.aggregator,
            threat=self.threat,
            personalize=self.personalize,
            expect_malicious=self.expectation,
        )
