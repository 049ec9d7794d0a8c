"""Personalize a shared model that is there already: post-hoc methods without a federation around them.

Methods that are compared start from the same shared model, and some of them need other data than it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.data.clients.clients import Clients
from holdfast.federated.checks import check_task
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.criterion import PerExample
from holdfast.federated.engine.executors import choose, make_executor
from holdfast.federated.engine.network import Network
from holdfast.federated.metrics.client_report import ClientReport
from holdfast.federated.personalization import PostHocPersonalizer, resolve
from holdfast.federated.result import SHARED
from holdfast.federated.settings import Rounds


@dataclass(frozen=True, eq=False)
class Personalized:
    """What `personalize` gives.

    Attributes:
        reports: how clients fare, by method; of the shared model under ``global``.
        runtime: the data, and the personal models.
        weights: the shared model, shape (P,).
    """

    reports: dict[str, ClientReport]
    runtime: ClientRuntime
    weights: Tensor

    def personal(self, label: str, client: int) -> nn.Module:
        """The personal model of a client."""
        return self.runtime.network.load(self.runtime.personal(label, torch.tensor([client]), self.weights)[0])


def personalize(
    clients: Clients,
    model: nn.Module,
    settings: Rounds,
    methods: Sequence[PostHocPersonalizer],
    *,
    loss: PerExample | None = None,
    score: PerExample | None = None,
) -> Personalized:
    """Tune a shared model on every client.

    Args:
        clients: their data.
        model: the shared model; its weights and running statistics are where tuning starts.
        settings: batch size, learning rates, optimizer, executor and seed; rounds are none.
        methods: that tune.
        loss: of each example, in place of the task's, as of `federate`.
        score: of each example, in place of accuracy in reports.

    Returns:
        Personal models and how they fare.

    Example:
        >>> from holdfast.data import load_federation
        >>> from holdfast.federated import FineTuning, Rounds, personalize
        >>> from holdfast.models import build
        >>> clients = load_federation("surrogate")
        >>> shared = build("softmax", clients.input_shape, clients.classes)
        >>> found = personalize(clients, shared, Rounds(executor="serial"), [FineTuning(epochs=1)])
        >>> sorted(found.reports)
        ['finetuning', 'global']
    """
    network = Network(
        model, clients.task, loss=loss, score=score, target_dims=clients.train.labels.ndim - 1, device=settings.device
    )
    post_hoc = resolve(methods, False)
    check_task(network, post_hoc, poisons_labels=False)
    for method in post_hoc:
        method.check_network(network)
        method.check(settings)
        method.check_data(clients)
    runtime = ClientRuntime(clients, network, settings, post_hoc)
    choice = choose(settings.executor, runtime.training, lambda trial: ClientRuntime(clients, network, trial))
    executor = make_executor(runtime, choice)
    benign = torch.ones(len(clients), dtype=torch.bool)
    try:
        for label, method in list(runtime.post_hoc.items()):
            runtime.post_hoc[label] = method.choose_hyperparameters(executor, network.initial)
            executor.personalize_all(runtime.post_hoc[label], network.initial)
        labels = {SHARED: None, **{label: label for label in runtime.post_hoc}}
        reports = {
            name: ClientReport.of(
                executor.score_all("test", network.initial, label), benign, network.criterion, clients.test
            )
            for name, label in labels.items()
        }
    finally:
        executor.close()
    return Personalized(reports, runtime, network.initial)
