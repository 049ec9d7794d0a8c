"""The loss of several models per client on the client's own data: how clients choose lambda, and mapper its share."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart
from holdfast.federated.engine.network import Network
from holdfast.federated.metrics.scoring import score_models


def validation_losses(network: Network, part: ClientPart, clients: Tensor, models: Tensor) -> Tensor:
    """Mean losses, all models stacked; infinite where a model has diverged.

    Args:
        network: the model.
        part: the data.
        clients: ids.
        models: shape (models, clients, P).

    Returns:
        float64 of shape (models, clients).
    """
    times = len(models)
    groups = torch.split(torch.arange(len(clients)), 1 if network.scores_depend_on_batch else len(clients))
    losses = [
        score_models(network, models[:, group].flatten(0, 1), part, clients[group].repeat(times)).loss
        for group in groups
    ]
    stacked = torch.cat([loss.view(times, -1) for loss in losses], dim=1)
    return torch.nan_to_num(stacked, nan=torch.inf, posinf=torch.inf)
