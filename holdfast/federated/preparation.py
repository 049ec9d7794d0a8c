"""A federation before its first round: methods resolved, labels poisoned, everything checked, nothing trained yet.

`prepare` is the check: what it returns can run, and nothing has been allocated or written for it. The command line
calls it before it makes a run directory; `run_federation` goes on with the same value, so nothing is checked twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from holdfast.data.clients.clients import Clients
from holdfast.errors import expect_kind
from holdfast.federated.aggregation import Aggregator, Mean
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.checks import check, check_private, check_server, check_task, settings_for
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.criterion import PerExample
from holdfast.federated.engine.network import Network
from holdfast.federated.expectation import Expectation, Expected, expectation_of
from holdfast.federated.objectives import FedAvg, FederatedObjective
from holdfast.federated.personalization.base import Personalizer
from holdfast.federated.personalization.factory import resolve, strong_attack
from holdfast.federated.server.optimizers import ServerOptimizer
from holdfast.federated.server.privacy import ClientPrivacy
from holdfast.federated.settings import Rounds


@dataclass(frozen=True, eq=False)
class PreparedFederation:
    """What a federation runs with.

    Attributes:
        clients: the data; training labels of malicious clients are poisoned already.
        network: the model, with the weights to start from.
        settings: rounds and local work, as the objective needs them.
        objective: what the shared model is trained for.
        aggregator: how the server combines what clients send.
        threat: an attack, where there is one.
        personalizers: the personalization methods as they run, see `resolve`.
        malicious: ids of malicious clients, int64.
        expected: how many malicious clients the server expects.
        server_optimizer: how the server's model moves, where it isn't by the aggregate itself.
        privacy: how clients are hidden in noise, where they are.
    """

    clients: Clients
    network: Network
    settings: Rounds
    objective: FederatedObjective
    aggregator: Aggregator
    threat: Threat | None
    personalizers: Sequence[Personalizer]
    malicious: Tensor
    expected: Expected
    server_optimizer: ServerOptimizer | None = None
    privacy: ClientPrivacy | None = None

    @property
    def f(self) -> int:
        """How many malicious clients the server expects in a round."""
        return self.expected.f

    @property
    def needs_losses(self) -> bool:
        """Whether clients report their loss at the received model."""
        return self.objective.needs_losses or self.aggregator.needs_losses

    def runtime(self, folder: Path | None = None, *, settings: Rounds | None = None) -> ClientRuntime:
        """Where client functions run.

        Args:
            folder: where personal models are kept; in temporary files by default.
            settings: others than the federation's, for a trial.
        """
        return ClientRuntime(
            self.clients,
            self.network,
            settings or self.settings,
            self.personalizers,
            proximal=self.objective.proximal,
            needs_losses=self.needs_losses,
            second=self.objective.second,
            folder=folder,
        )


def prepare(
    clients: Clients,
    model: nn.Module,
    settings: Rounds | None = None,
    *,
    objective: FederatedObjective | None = None,
    aggregator: Aggregator | None = None,
    threat: Threat | None = None,
    personalize: Sequence[Personalizer] = (),
    expect_malicious: Expectation | float | None = None,
    server_optimizer: ServerOptimizer | None = None,
    privacy: ClientPrivacy | None = None,
    loss: PerExample | None = None,
    score: PerExample | None = None,
) -> PreparedFederation:
    """Bring data, model and methods together, if they go together; arguments as of `federate`.

    Raises:
        ConfigError: if methods don't go together, or a setting can't work.
        DataError: if a client has no training data.
    """
    settings = Rounds() if settings is None else settings
    _check_kinds(
        personalize,
        clients=clients,
        model=model,
        settings=settings,
        objective=objective,
        aggregator=aggregator,
        threat=threat,
        server_optimizer=server_optimizer,
        privacy=privacy,
    )
    made = assemble(
        clients,
        model,
        settings,
        objective=objective or FedAvg(),
        aggregator=aggregator or Mean(),
        threat=threat,
        personalize=personalize,
        expect_malicious=expect_malicious,
        server_optimizer=server_optimizer,
        privacy=privacy,
        loss=loss,
        score=score,
    )
    check(
        clients,
        made.settings,
        made.personalizers,
        objective=made.objective,
        aggregator=made.aggregator,
        expected=made.expected,
    )
    for method in made.personalizers:
        method.check_network(made.network)
    check_server(
        clients,
        made.settings,
        objective=made.objective,
        aggregator=made.aggregator,
        optimizer=server_optimizer,
        privacy=privacy,
    )
    if privacy is not None:
        check_private(made.network)
    poisons = threat is not None and threat.attack.poisons_labels
    check_task(made.network, made.personalizers, poisons_labels=poisons)
    return made


def assemble(
    clients: Clients,
    model: nn.Module,
    settings: Rounds,
    *,
    objective: FederatedObjective,
    aggregator: Aggregator,
    threat: Threat | None,
    personalize: Sequence[Personalizer],
    expect_malicious: Expectation | float | None = None,
    server_optimizer: ServerOptimizer | None = None,
    privacy: ClientPrivacy | None = None,
    loss: PerExample | None = None,
    score: PerExample | None = None,
) -> PreparedFederation:
    """The same without the check, for a node of a real federation, which has the data of some clients only."""
    settings = settings_for(objective, settings, clients)
    malicious, poisoned = torch.empty(0, dtype=torch.int64), clients
    labels = clients.train.labels
    if threat is not None:
        malicious = threat.malicious(len(clients), settings.seed)
        if not labels.is_floating_point():  # a regression has no labels to poison, and is refused by the check
            poisoned = threat.poison(clients, malicious, settings.seed)
    attackers = None if threat is None else len(malicious)
    expected = expectation_of(expect_malicious).resolve(len(clients), settings, attackers)
    return PreparedFederation(
        clients=poisoned,
        network=Network(
            model, clients.task, loss=loss, score=score, target_dims=labels.ndim - 1, device=settings.device
        ),
        settings=settings,
        objective=objective,
        aggregator=aggregator,
        threat=threat,
        personalizers=resolve(personalize, strong_attack(threat, aggregator, expected)),
        malicious=malicious,
        expected=expected,
        server_optimizer=server_optimizer,
        privacy=privacy,
    )


#: What each argument must be: its class, that in words, and what makes one of a name. Only methods may be left out.
_KINDS: Mapping[str, tuple[type, str, str]] = {
    "clients": (
        Clients,
        "a federation's data, such as Clients.of({'a': (x, y)})",
        "holdfast.data.load_federation({!r})",
    ),
    "model": (nn.Module, "a torch module", "holdfast.models.build({!r}, input_shape, n_classes)"),
    "settings": (Rounds, "Rounds, such as Rounds(rounds=100)", ""),
    "objective": (FederatedObjective, "an objective, such as Term(t=1.0)", ""),
    "aggregator": (Aggregator, "an aggregation rule, such as MultiKrum()", "build_aggregator({!r})"),
    "threat": (Threat, "an attack and the share that mounts it, such as Threat(ModelReplacement(), 0.2)", ""),
    "server_optimizer": (ServerOptimizer, "a server's optimizer, such as FedAdam()", ""),
    "privacy": (ClientPrivacy, "a ClientPrivacy, such as ClientPrivacy(clip=0.3)", ""),
}


def _check_kinds(personalize: object, **given: object) -> None:
    """Say what was given in place of a method: mostly its name, its class, or an attack without its share."""
    for argument, value in given.items():
        if value is not None or argument in ("clients", "model"):
            kind, wanted, by_name = _KINDS[argument]
            expect_kind(argument, value, kind, wanted, by_name)
    if not isinstance(personalize, Sequence) or isinstance(personalize, str):
        expect_kind("personalize", personalize, (), "a list of personalization methods, such as [Ditto()]")
    for method in cast(Sequence[object], personalize):
        expect_kind("a member of personalize", method, Personalizer, "a personalization method, such as Ditto()")
