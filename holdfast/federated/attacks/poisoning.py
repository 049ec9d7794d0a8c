"""Who is malicious, and what they do to their labels (Ditto, Section 2, attack A1)."""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.streams import torch_stream

_log = logging.getLogger(__name__)


def malicious_clients(clients: int, ratio: float, seed: int) -> Tensor:
    """Who is malicious throughout training, drawn uniformly without replacement.

    The first of one permutation per seed, so those of a smaller ratio are among those of a larger one.

    Args:
        clients: how many there are.
        ratio: share that is malicious, in [0, 1); the number is rounded down.
        seed: of the run.

    Returns:
        Ids, ascending, int64 of shape (floor(ratio x clients),).

    Raises:
        ConfigError: if the ratio is not in [0, 1).
    """
    if not 0 <= ratio < 1:
        raise ConfigError(f"the share of malicious clients is {ratio:g}; give a number from 0 to below 1")
    count = math.floor(round(ratio * clients, 9))
    if ratio > 0 and count == 0:
        _log.warning("%g of %d clients is less than one: nobody is malicious", ratio, clients)
    return torch.randperm(clients, generator=torch_stream(seed, "malicious"))[:count].sort().values


def poison_labels(labels: Tensor, owners: Tensor, malicious: Tensor, classes: int, seed: int) -> Tensor:
    """Labels after malicious clients replaced theirs, once and for all (A1).

    Two classes are swapped; more are drawn uniformly, so that a label may stay. A client's draws depend on the seed
    and its id alone. Meant for training labels only.

    Args:
        labels: int64 of shape (n,).
        owners: the client of each label, int64 of shape (n,).
        malicious: ids of malicious clients.
        classes: number of classes.
        seed: of the run.

    Returns:
        New labels of the same shape.
    """
    poisoned = labels.clone()
    if classes == 2:
        theirs = torch.isin(owners, malicious)
        poisoned[theirs] = 1 - labels[theirs]
        return poisoned
    order = owners.argsort(stable=True)
    counts = torch.bincount(owners, minlength=int(malicious.max()) + 1 if len(malicious) else 0)
    ends = counts.cumsum(0)
    for client in malicious.tolist():
        theirs = order[ends[client] - counts[client] : ends[client]]
        poisoned[theirs] = torch.randint(classes, (len(theirs),), generator=torch_stream(seed, "poison", client))
    return poisoned
