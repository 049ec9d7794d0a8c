"""The best single lambda in hindsight: what choosing on clients is compared with (Ditto, Tables 4 and 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from holdfast.errors import ConfigError
from holdfast.federated.metrics.client_report import benign_of
from holdfast.federated.personalization.ditto.ditto import Ditto

if TYPE_CHECKING:
    from holdfast.federated.result import FederationResult

_BLOCK = 64


def best_lambda(outcome: FederationResult) -> Ditto:
    """The fixed lambda of a federation with the best mean accuracy on the validation data of benign clients.

    An oracle: who is benign is not known in practice. Test data is not looked at. Clients without validation data don't
    count, and of equal lambdas the smallest is taken.

    Args:
        outcome: of a federation with several `Ditto(lambda)`.

    Returns:
        The method; its `label` names the report.

    Raises:
        ConfigError: if the federation had no Ditto with a fixed lambda, or no benign client has validation data.
    """
    alongside = [method for method in outcome.runtime.alongside if type(method) is Ditto]
    if not alongside:
        raise ConfigError(
            "there is no Ditto with a fixed lambda to choose from; run some, such as Ditto(0.1), Ditto(1)"
        )
    sign = 1 if outcome.network.criterion.higher_is_better else -1
    return max(
        sorted(alongside, key=lambda method: method.strength),
        key=lambda method: sign * validation_accuracy(outcome, method),
    )


def validation_accuracy(outcome: FederationResult, method: Ditto) -> float:
    """Mean accuracy, or mean score, of personal models over benign clients, on their validation data.

    Args:
        outcome: of a federation.
        method: one of its methods.

    Raises:
        ConfigError: if no benign client has validation data.
    """
    runtime = outcome.runtime
    counts = runtime.clients.validation.counts
    counted = (benign_of(outcome.malicious, len(runtime.clients)) & (counts > 0)).nonzero().flatten()
    if not len(counted):
        raise ConfigError("no benign client has validation data to choose lambda by; hold some out")
    blocks = torch.split(counted, 1 if runtime.network.scores_depend_on_batch else _BLOCK)
    accuracies = [runtime.score(block, "validation", outcome.weights, method.label).accuracy for block in blocks]
    return float(torch.cat(accuracies).mean())
