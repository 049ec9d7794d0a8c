"""Personalize a shared model that is there already: tuners without a federation around them.

Methods that are compared start from the same shared model, and some of them need other data than it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.data.clients.clients import Clients
from holdfast.federated.checks import check_statistics, with_tuners
from holdfast.federated.engine.executors import choose, make_executor
from holdfast.federated.engine.network import Network
from holdfast.federated.engine.site import Site
from holdfast.federated.metrics.device_report import DeviceReport
from holdfast.federated.outcome import SHARED
from holdfast.federated.personalization import Personalizer, Tuner
from holdfast.federated.settings import Rounds


@dataclass(frozen=True, eq=False)
class Personalized:
    """What `personalize` gives.

    Attributes:
        reports: how clients fare, by method; of the shared model under ``global``.
        site: the data, and the personal models.
        weights: the shared model, shape (P,).
    """

    reports: dict[str, DeviceReport]
    site: Site
    weights: Tensor

    def personal(self, label: str, client: int) -> nn.Module:
        """The personal model of a client."""
        return self.site.network.load(self.site.personal(label, torch.tensor([client]), self.weights)[0])


def personalize(clients: Clients, model: nn.Module, settings: Rounds, methods: Sequence[Tuner]) -> Personalized:
    """Tune a shared model on every client.

    Args:
        clients: their data.
        model: the shared model; its weights and running statistics are where tuning starts.
        settings: batch size, learning rates, optimizer, executor and seed; rounds are none.
        methods: that tune.

    Returns:
        Personal models and how they fare.

    Example:
        >>> from holdfast.data import load_federation
        >>> from holdfast.federated import FineTuning, Rounds, personalize
        >>> from holdfast.models import build
        >>> clients = load_federation("surrogate", clients=4)
        >>> shared = build("softmax", clients.input_shape, clients.classes)
        >>> found = personalize(clients, shared, Rounds(executor="serial"), [FineTuning(epochs=1)])
        >>> sorted(found.reports)
        ['finetuning', 'global']
    """
    network = Network(model, clients.task)
    tuners: list[Personalizer] = with_tuners(methods)
    check_statistics(network, tuners)
    for method in tuners:
        method.check(settings)
    site = Site(clients, network, settings, tuners)
    executor = make_executor(site, choose(settings.executor, Site(clients, network, settings, ())))
    benign = torch.ones(len(clients), dtype=torch.bool)
    try:
        for label, method in list(site.tuners.items()):
            site.tuners[label] = method.settled(executor, network.initial)
            executor.tune_all(site.tuners[label], network.initial)
        labels = {SHARED: None, **{label: label for label in site.tuners}}
        reports = {
            name: DeviceReport(executor.score_all("test", network.initial, label), benign)
            for name, label in labels.items()
        }
    finally:
        executor.close()
    return Personalized(reports, site, network.initial)
