"""The loss of several models per client on the client's own data: how devices choose lambda, and mapper its share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.data.clients import ClientPart
from holdfast.federated.scoring import score_models

if TYPE_CHECKING:
    from holdfast.federated.site import Site


def own_losses(site: Site, part: ClientPart, clients: Tensor, models: Tensor) -> Tensor:
    """Mean losses, all models stacked; infinite where a model has diverged.

    Args:
        site: the network.
        part: the data.
        clients: ids.
        models: shape (models, clients, P).

    Returns:
        float64 of shape (models, clients).
    """
    stacked = torch.empty(models.shape[:2], dtype=torch.float64)
    for group in _alike(part.counts[clients], site.network.batch_dependent):
        rows = models[:, group].flatten(0, 1)
        stacked[:, group] = score_models(site.network, rows, part, clients[group].repeat(len(models))).loss.view(
            len(models), -1
        )
    return torch.nan_to_num(stacked, nan=torch.inf, posinf=torch.inf)


def _alike(counts: Tensor, one_by_one: bool) -> list[Tensor]:
    """Places of clients whose numbers of examples differ by less than a factor of two, so that little is padding."""
    if one_by_one:
        return list(torch.arange(len(counts)).split(1))
    power = torch.log2(counts.clamp(min=1).double()).floor()
    return [(power == each).nonzero().flatten() for each in power.unique()]
