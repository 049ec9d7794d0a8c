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
    if joint and objective.proximal:
        raise ConfigError(
            f"{joint[0].name} decides what clients do with the shared model, so {objective.name} can't pull "
            "on it; use fedavg"
        )
    for sentence in expected.check(aggregator):
        _log.warning(sentence)
    for method in personalizers:
        method.check(settings)
        if has_examples(clients):
            method.check_data(clients)
    if settings.optimizer != "sgd" and (joint or objective.single_step or objective.full_gradient):
        what = joint[0].name if joint else objective.name
        raise ConfigError(f"{what} is defined by gradient steps, so optimizer {settings.optimizer!r} can't be; use sgd")


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


def check_statistics(network: Network, personalizers: Sequence[Personalizer]) -> None:
    """Refuse methods that have no place for a model's running statistics.

    Raises:
        ConfigError: if the model has some and a method mixes models.
    """
    mixing = [method.name for method in personalizers if not method.keeps_statistics]
    if mixing and network.tracks_statistics:
        raise ConfigError(
            f"{mixing[0]} mixes models, and the running statistics of batch normalisation can't be mixed; "
            "use a model with group normalisation, or track_running_stats=False"
        )


def settings_for(objective: FederatedObjective, settings: Rounds, clients: Clients) -> Rounds:
    """Local work as the objective needs it: one step (FedSGD), or one full gradient of every client (AFL)."""
    if objective.single_step:
        settings = replace(settings, local_steps=1, local_epochs=None)
    if objective.full_gradient:
        settings = replace(settings, cohort=len(clients), batch_size=int(clients.train.counts.max()))
    return settings
