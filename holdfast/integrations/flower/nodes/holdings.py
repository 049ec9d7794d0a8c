"""Which clients a node has, and their data in the places that they have in the federation.

A client is known by its id: its random streams, its batches and whether it plays the attacker follow from it. So a node
keeps the federation's numbering: its data has as many clients as the federation, of which those elsewhere are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError, DataError
from holdfast.integrations.flower.nodes.ids import parse_ids


def picked(clients: Clients, ids: Sequence[int]) -> Clients:
    """The data of some clients alone, in the order of `ids`."""
    which = torch.tensor(list(ids), dtype=torch.int64)
    if len(which) and int(which.max()) >= len(clients):
        raise DataError(f"the data has {len(clients)} clients and client {int(which.max())} is asked for")
    parts: dict[str, Any] = {name: _picked(part, which) for name, part in clients.parts.items()}
    names = tuple(clients.names[client] for client in ids) if clients.names else ()
    return replace(clients, **parts, names=names)


def placed(clients: Clients, ids: Sequence[int], total: int) -> Clients:
    """The same data with the federation's numbering: client ``ids[k]`` of `total` is client k of `clients`."""
    if len(ids) != len(clients):
        raise DataError(f"the data has {len(clients)} clients and the node names {len(ids)}; name one id per client")
    parts: dict[str, Any] = {name: _placed(part, ids, total) for name, part in clients.parts.items()}
    return replace(clients, **parts, names=())


def open_data(config: Mapping[str, object], given: Sequence[int] | None = None) -> tuple[Clients, list[int]] | None:
    """The clients in the folder that a node's configuration names, and their ids; None where it names none.

    Args:
        config: of the node.
        given: ids that the federation gave the node, for one whose configuration names none.

    Raises:
        ConfigError: if nobody says whose data it is.
    """
    folder, ids = config.get("data"), config.get("clients")
    if folder is None:
        return None
    if isinstance(ids, str):
        return Clients.open(Path(str(folder))), parse_ids(ids)
    if given is None:
        raise ConfigError(f'the node has data at {folder} and does not say whose; add clients="3" to --node-config')
    return Clients.open(Path(str(folder))), list(given)


def _picked(part: ClientPart, which: Tensor) -> ClientPart:
    spans = zip(part.offsets[which].tolist(), part.offsets[which + 1].tolist(), strict=True)
    rows = torch.cat([torch.empty(0, dtype=torch.int64), *(torch.arange(first, last) for first, last in spans)])
    groups = None if part.groups is None else part.groups[rows]
    counts = part.counts[which]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return ClientPart(part.inputs[rows], part.labels[rows], offsets, groups)


def _placed(part: ClientPart, ids: Sequence[int], total: int) -> ClientPart:
    counts = torch.zeros(total, dtype=torch.int64)
    counts[torch.tensor(list(ids), dtype=torch.int64)] = part.counts
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return ClientPart(part.inputs, part.labels, offsets, part.groups)
