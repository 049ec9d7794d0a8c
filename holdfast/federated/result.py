"""What a federation leaves: the models, how every client fares with each, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.executors import ExecutorChoice
from holdfast.federated.engine.network import Network
from holdfast.federated.expectation import Expected
from holdfast.federated.metrics.client_report import ClientReport
from holdfast.federated.metrics.divergence import Divergence
from holdfast.federated.server.privacy import PrivacySpent

#: Name of the shared model in reports.
SHARED = "global"


@dataclass(frozen=True, eq=False)
class FederationResult:
    """What a federation leaves.

    Attributes:
        reports: how every client fares, under ``global`` with the shared model and by method with personal ones.
        weights: the shared model, shape (P,).
        network: turns parameters into modules: ``network.load(weights)``.
        runtime: has the personal models, see `personal`.
        malicious: ids of malicious clients.
        expected: how many of them the server expected.
        history: summaries along the rounds.
        joined: rounds that each client took part in.
        dropped: updates that were dropped because they were not finite.
        diverged_at: round after which the shared model was frozen, if it was.
        divergence: what to say of a shared model whose loss exploded, if it did.
        bytes_up: sent by clients, in all.
        bytes_down: sent to clients, in all.
        seconds: training time, of all processes that had a part in it.
        choice: the executor that was used.
        faults: what kept clients of a real federation out of rounds: round, clients, kind and reason.
        participation: of a real federation, in what share of the rounds that drew a client its update counted.
        privacy: what was spent of clients' privacy, where they were hidden in noise.
    """

    reports: dict[str, ClientReport]
    weights: Tensor
    network: Network
    runtime: ClientRuntime
    malicious: Tensor
    expected: Expected
    history: list[dict[str, Any]]
    joined: Tensor
    dropped: int
    diverged_at: int | None
    divergence: Divergence | None
    bytes_up: int
    bytes_down: int
    seconds: float
    choice: ExecutorChoice
    faults: Sequence[dict[str, Any]] = ()
    participation: dict[str, Any] | None = None
    privacy: PrivacySpent | None = None

    def model(self) -> nn.Module:
        """The shared model."""
        return self.network.load(self.weights)

    def personal(self, label: str, client: int) -> nn.Module:
        """The personal model of a client."""
        return self.network.load(self.runtime.personal(label, torch.tensor([client]), self.weights)[0])
