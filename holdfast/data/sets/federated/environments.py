"""Clients that live in one of two environments, and are tested in both.

In each environment something that does not matter, a colour or a place, goes with the label, and in the other
environment it goes with another label: over all clients it tells little or nothing, on one client it is a shortcut
(Personalized FL with spurious features, Section 6.1). `Clients.test` is of the client's own environment,
`Clients.elsewhere` of the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.data.clients.partitions import Partition, Rows, by_classes, split_parts
from holdfast.errors import ConfigError

#: How colours go with labels. ``swap2``: two colours by parity, which the other environment swaps, so that both
#: together tell nothing. ``cyclic10``: label k has colour k + environment modulo 10. ``client-perm``: every client has
#: ten colours in an order of its own.
Scheme = Literal["swap2", "cyclic10", "client-perm"]

#: From rows of a pooled set, the client and the environment of each, all int64 of shape (n,), to inputs (n, ...).
View = Callable[[Rows, Rows, Rows], Tensor]


def balanced_slots(labels: Rows, clients: int, per_client: int, rng: np.random.Generator) -> Partition:
    """Every client has so many classes, every class about as many clients, and its rows are dealt out evenly.

    Args:
        labels: class of each row, int64 of shape (n,).
        clients: how many.
        per_client: classes of each.
        rng: decides which.
    """
    owned = balanced_classes(clients, per_client, int(labels.max()) + 1, rng)
    return by_classes(labels, owned, np.ones(clients, np.int64), rng)


def balanced_classes(clients: int, per_client: int, classes: int, rng: np.random.Generator) -> Rows:
    """Different classes for each client, at random among those with the fewest clients so far, shape (clients, c)."""
    if not 1 <= per_client <= classes:
        raise ConfigError(f"a client can't have {per_client} of {classes} classes; give a number from 1 to {classes}")
    holders = np.zeros(classes, np.int64)
    owned = np.empty((clients, per_client), np.int64)
    for row in owned:
        row[:] = np.lexsort((rng.random(classes), holders))[:per_client]
        holders[row] += 1
    return owned


def draw_environments(clients: int, share: float, rng: np.random.Generator) -> Rows:
    """The environment of each client, 0 or 1, int64 of shape (clients,).

    Args:
        clients: how many.
        share: of clients in environment 0, rounded to whole clients; one half leaves no majority.
        rng: decides who.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of clients in environment 0 is {share}; give a number from 0 to 1")
    first = round(share * clients)
    return rng.permutation(np.repeat([0, 1], [first, clients - first]))


def colour_table(scheme: Scheme, classes: int, clients: int, rng: np.random.Generator) -> Rows:
    """The colour of each label, int64 of shape (clients, environments, classes)."""
    label = np.arange(classes)
    if scheme == "swap2":
        table = np.stack([label % 2, 1 - label % 2])
    elif scheme == "cyclic10":
        table = np.stack([label % 10, (label + 1) % 10])
    else:
        orders = np.stack([rng.permutation(10) for _ in range(clients)])
        return np.stack([orders[:, label % 10], orders[:, (label + 1) % 10]], axis=1)
    return np.broadcast_to(table, (clients, 2, classes))


def in_own_environment(
    partition: Partition,
    labels: Rows,
    environments: Rows,
    view: View,
    rng: np.random.Generator,
    *,
    classes: int,
    counterexamples: float = 0.0,
) -> Clients:
    """Split every client 72/8/20; it sees its environment, and its test images once more as they look in the other.

    Args:
        partition: who owns which rows.
        labels: class of each row of the pooled set, int64 of shape (n,).
        environments: of each client, 0 or 1.
        view: how rows look.
        rng: decides the split, and which training examples become counterexamples.
        classes: number of classes.
        counterexamples: share of each client's training examples that look as in the other environment; at least one
            of each client where it is above 0. They have group 1.

    Returns:
        The clients.
    """
    if not 0 <= counterexamples < 1:
        raise ConfigError(f"the share of counterexamples is {counterexamples}; give 0 or more, below 1")
    train, validation, test = split_parts(partition, rng)
    turned = np.zeros(len(train.rows), bool)
    if counterexamples:
        wanted = np.maximum(np.rint(counterexamples * train.counts), 1)
        turned = train.ranks() < np.repeat(wanted, train.counts)

    def gather(part: Partition, other: NDArray[np.bool_], *, marked: bool = False) -> ClientPart:
        owners = np.repeat(np.arange(len(part)), part.counts)
        inputs = view(part.rows, owners, environments[owners] ^ other)
        groups = torch.from_numpy(other.astype(np.int64)) if marked else None
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(part.counts)]))
        return ClientPart(inputs, torch.from_numpy(labels[part.rows]).long(), offsets, groups)

    here, there = np.zeros(len(test.rows), bool), np.ones(len(test.rows), bool)
    return Clients(
        gather(train, turned, marked=bool(counterexamples)),
        gather(validation, np.zeros(len(validation.rows), bool)),
        gather(test, here),
        classes,
        names=tuple(f"environment {environment}" for environment in environments),
        elsewhere=gather(test, there),
    ).check()


def in_disjoint_environments(
    here: Partition,
    there: Partition,
    read: Callable[[Rows], Tensor],
    labels: Rows,
    rng: np.random.Generator,
    *,
    classes: int,
) -> Clients:
    """Split what each client has in its environment 72/8/20; all it has in the other is `Clients.elsewhere`.

    Args:
        here: who owns which rows in its own environment.
        there: who owns which rows in the other one.
        read: rows to inputs.
        labels: class of each row of the pooled set, int64 of shape (n,).
        rng: decides the split.
        classes: number of classes.
    """
    targets = torch.from_numpy(labels)

    def gather(part: Partition) -> ClientPart:
        rows = torch.from_numpy(part.rows)
        return ClientPart.of_counts(read(part.rows), targets[rows].long(), torch.from_numpy(part.counts))

    train, validation, test = (gather(part) for part in split_parts(here, rng))
    return Clients(train, validation, test, classes, elsewhere=gather(there)).check()


def some_clients(clients: Clients, ids: Sequence[int]) -> Clients:
    """These clients only, in this order."""

    def taken(part: ClientPart) -> ClientPart:
        bounds = part.offsets.tolist()
        rows = torch.cat([torch.arange(bounds[client], bounds[client + 1]) for client in ids])
        inputs, labels = part.gather(rows)
        groups = None if part.groups is None else part.groups[rows]
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), part.counts[list(ids)].cumsum(0)])
        return ClientPart(inputs, labels, offsets, groups)

    return Clients(
        taken(clients.train),
        taken(clients.validation),
        taken(clients.test),
        clients.classes,
        clients.task,
        tuple(clients.names[client] for client in ids) if clients.names else (),
        None if clients.elsewhere is None else taken(clients.elsewhere),
    )
