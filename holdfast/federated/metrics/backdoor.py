"""How often a backdoor works: stamped test examples of other classes that a model takes for the attackers' target."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart
from holdfast.federated.attacks import Backdoor, stamp
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.metrics.scoring import score_models, score_shared
from holdfast.federated.result import SHARED

#: Personal models that are scored at once.
_CHUNK = 64


def backdoor_success(
    runtime: ClientRuntime, shared: Tensor, labels: list[str], attack: Backdoor, benign: Tensor
) -> dict[str, dict[str, float]]:
    """Of every model, the share of examples that it takes for the target, with the attackers' sign and without.

    Counted are the test examples of benign clients that belong to another class, every example alike.

    Args:
        runtime: has the clients and the personal models.
        shared: the shared model, shape (P,).
        labels: of the models.
        attack: the backdoor.
        benign: bool of shape (clients,).

    Returns:
        ``success`` and ``without`` by model; without the sign, an honest model's mistakes remain.
    """
    part = _other_classes(runtime.clients.test, attack.target)
    stamped = ClientPart(stamp(part.inputs, attack.size, attack.value), part.labels, part.offsets)
    counted = (benign & (part.counts > 0)).nonzero().flatten()
    if not len(counted):
        return {}
    return {
        label: {
            "success": _share_of_target(runtime, shared, label, stamped, counted),
            "without": _share_of_target(runtime, shared, label, part, counted),
        }
        for label in labels
    }


def _other_classes(part: ClientPart, target: int) -> ClientPart:
    """The examples of other classes, all labelled as the target."""
    others = part.labels != target
    counts = torch.bincount(part.owners()[others], minlength=len(part))
    return ClientPart.of_counts(part.inputs[others], torch.full_like(part.labels[others], target), counts)


def _share_of_target(runtime: ClientRuntime, shared: Tensor, label: str, part: ClientPart, clients: Tensor) -> float:
    if label == SHARED:
        scores = [score_shared(runtime.network, shared, part, clients)]
    else:
        scores = [
            score_models(runtime.network, runtime.personal(label, some, shared), part, some)
            for some in torch.split(clients, _CHUNK)
        ]
    return sum(int(score.correct.sum()) for score in scores) / int(part.counts[clients].sum())
