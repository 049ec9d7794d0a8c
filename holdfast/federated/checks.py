"""What is looked at before the first round: methods that don't go together, settings and data that can't work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError, DataError
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.engine.network import Network
from holdfast.federated.expectation import Expected
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.personalization.base import JointPersonalizer, Personalizer
from holdfast.federated.server.optimizers import ServerOptimizer
from holdfast.federated.server.privacy import ClientPrivacy
from holdfast.federated.settings import Rounds

_log = logging.getLogger(__name__)


def check(
    clients: Clients,
    settings: Rounds,
    personalizers: Sequence[Personalizer],
    *,
    objective: FederatedObjective,
    aggregator: Aggregator,
    expected: Expected,
) -> None:
    """Refuse what can't work, and log what probably is not intended.

    Raises:
        ConfigError: if methods don't go together, or a setting can't work.
        DataError: if a client has no training data.
    """
    empty = (clients.train.counts == 0).nonzero().flatten().tolist()
    if empty:
        raise DataError(f"client {empty[0]} has no training examples ({len(empty)} clients in all); leave them out")
    single = int((clients.classes_seen() == 1).sum())
    if single:
        _log.warning("%d of %d clients have training examples of one class only", single, len(clients))
    if settings.cohort > len(clients):
        raise ConfigError(f"a round wants {settings.cohort} clients and there are {len(clients)}; lower the cohort")
    objective.check(aggregator)
    joint = [method for method in personalizers if isinstance(method, JointPersonalizer)]
    if joint and (objective.proximal or objective.second is not None):
        what = "pull on it" if objective.proximal else "correct its steps"
        raise ConfigError(
            f"{joint[0].name} decides what clients do with the shared model, so {objective.name} can't {what}; use "
            "fedavg"
        )
    for sentence in expected.check(aggregator):
        _log.warning(sentence)
    for method in personalizers:
        method.check(settings)
        if has_examples(clients):
            method.check_data(clients)
    by_steps = objective.single_step or objective.full_gradient or objective.second is not None
    if settings.optimizer != "sgd" and (joint or by_steps):
        what = joint[0].name if joint else objective.name
        raise ConfigError(f"{what} is defined by gradient steps, so optimizer {settings.optimizer!r} can't be; use sgd")


def check_server(
    clients: Clients,
    settings: Rounds,
    *,
    objective: FederatedObjective,
    aggregator: Aggregator,
    optimizer: ServerOptimizer | None,
    privacy: ClientPrivacy | None,
) -> None:
    """Refuse what the server can't do with an aggregate.

    Raises:
        ConfigError: if there is such a thing.
    """
    if optimizer is not None and objective.full_gradient:
        raise ConfigError(
            f"{objective.name} averages the models of all rounds, which are those of its own steps; leave "
            f"{optimizer.name} out, or use another objective"
        )
    if privacy is not None:
        privacy.check(settings, objective, aggregator, len(clients))
    if settings.sampling == "poisson" and (aggregator.needs_f or aggregator.stands(settings.cohort) is not None):
        raise ConfigError(
            f"poisson sampling draws another number of clients in every round, and {aggregator.label} promises "
            "something of a fixed one; use uniform sampling, or mean"
        )


def has_examples(clients: Clients) -> bool:
    """Whether the clients' examples are here; the server of a real federation knows only how many there are."""
    return int(clients.train.counts.sum()) == len(clients.train.labels)


def check_task(network: Network, personalizers: Sequence[Personalizer], *, poisons_labels: bool) -> None:
    """Refuse methods that are made for classes where clients are scored by something else.

    Args:
        network: the model and what it is scored by.
        personalizers: the methods.
        poisons_labels: whether an attack replaces labels by other classes.

    Raises:
        ConfigError: if there is one.
    """
    if network.criterion.is_accuracy:
        return
    for method in personalizers:
        if method.needs_classes:
            raise ConfigError(
                f"{method.name} is made for classes, and clients are scored by {network.criterion.measure}; use another"
            )
    if poisons_labels and network.task == "regression":
        raise ConfigError("this attack replaces labels by other classes, and a regression has none; use another")


def check_private(network: Network) -> None:
    """Refuse a model whose statistics noise would make useless.

    Raises:
        ConfigError: if the model has running statistics.
    """
    if network.tracks_statistics:
        raise ConfigError(
            "privacy clips all that clients send and adds noise, which makes running statistics of batch normalisation "
            "useless; use a model with group normalisation, or track_running_stats=False"
        )


def settings_for(objective: FederatedObjective, settings: Rounds, clients: Clients) -> Rounds:
    """Local work as the objective needs it: one step (FedSGD), or one full gradient of every client (AFL)."""
    if objective.single_step:
        settings = replace(settings, local_steps=1, local_epochs=None)
    if objective.full_gradient:
        settings = replace(settings, cohort=len(clients), batch_size=int(clients.train.counts.max()))
    return settings
