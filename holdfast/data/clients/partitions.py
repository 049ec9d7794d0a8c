"""Which client owns which rows of a pooled data set: pure functions of labels, sizes and a random generator.

A `Partition` lists rows client after client. Partitions say how heterogeneous a federation is, so they are kept apart
from the data: the same images can be dealt out iid, by classes (Ditto), by Dirichlet draws or by a natural key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.apportionment import apportion
from holdfast.data.clients.clients import ClientPart
from holdfast.errors import ConfigError, DataError, counted

Rows = NDArray[np.int64]

#: How many examples clients have: all the same, LogNormal(3, 1) + 10 (Ditto), or Pareto with exponent 1.5.
Sizes = Literal["equal", "lognormal", "power-law"]


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows of a pooled set, client after client.

    Attributes:
        rows: int64 of shape (n,).
        counts: how many of them each client owns, int64 of shape (clients,).
    """

    rows: Rows
    counts: Rows

    @classmethod
    def of_owners(cls, owners: Rows, clients: int) -> Partition:
        """From the client of each row, int64 of shape (n,), in the rows' order; -1 is nobody's."""
        order = np.argsort(owners, kind="stable")
        return cls(order[np.searchsorted(owners[order], 0) :], np.bincount(owners[owners >= 0], minlength=clients))

    def __len__(self) -> int:
        return len(self.counts)

    def of(self, client: int) -> Rows:
        """The rows of one client."""
        end = int(self.counts[: client + 1].sum())
        return self.rows[end - int(self.counts[client]) : end]

    def gather(self, inputs: Tensor, labels: Tensor) -> ClientPart:
        """The clients' inputs and labels."""
        rows = torch.from_numpy(self.rows)
        return ClientPart.of_counts(inputs.index_select(0, rows), labels[rows].long(), torch.from_numpy(self.counts))

    def take(self, wanted: NDArray[np.bool_]) -> Partition:
        """The rows at the marked positions of `rows`, bool of shape (n,)."""
        owners = np.repeat(np.arange(len(self)), self.counts)
        return Partition(self.rows[wanted], np.bincount(owners[wanted], minlength=len(self)))

    def shuffled(self, rng: np.random.Generator) -> Partition:
        """The same rows for every client, in random order."""
        owners = np.repeat(np.arange(len(self)), self.counts)
        return Partition(self.rows[np.lexsort((rng.random(len(owners)), owners))], self.counts)

    def ranks(self) -> Rows:
        """Position of each row among its client's rows, from 0."""
        starts = np.cumsum(self.counts) - self.counts
        return np.arange(len(self.rows)) - np.repeat(starts, self.counts)


def draw_sizes(kind: Sizes, clients: int, total: int, rng: np.random.Generator, at_least: int = 2) -> Rows:
    """How many of `total` examples each client gets; the sizes add up to `total` exactly.

    Args:
        kind: their distribution.
        clients: how many.
        total: what is dealt out.
        rng: random stream.
        at_least: the smallest size; two, since a client needs one to train on and one to be tested on.

    Returns:
        int64 of shape (clients,).

    Raises:
        ConfigError: if there are no clients.
        DataError: if `total` doesn't suffice.
    """
    check_client_count(clients, total, at_least)
    if kind == "equal":
        weights = np.ones(clients)
    elif kind == "lognormal":
        weights = rng.lognormal(3, 1, clients) + 10
    else:
        weights = rng.pareto(1.5, clients) + 1
    return at_least + apportion(total - clients * at_least, weights)


def check_client_count(clients: int, total: int, at_least: int = 2) -> None:
    """Refuse more clients than examples suffice for, before anything is made for each of them.

    Raises:
        ConfigError: if there are no clients.
        DataError: if `total` doesn't suffice.
    """
    if clients < 1:
        raise ConfigError(f"a federation needs at least one client and was asked for {clients}")
    if total < clients * at_least:
        raise DataError(
            f"{total} examples don't suffice for {clients} clients with at least {at_least} each; use at most "
            f"{total // at_least} clients"
        )


def rolling_classes(clients: int, per_client: int, classes: int) -> Rows:
    """Client u owns the classes u, ..., u+c-1 modulo C (Ditto's Fashion-MNIST), shape (clients, c)."""
    _check_class_count(per_client, classes)
    return (np.arange(clients)[:, None] + np.arange(per_client)) % classes


def random_classes(clients: int, per_client: int, classes: int, rng: np.random.Generator) -> Rows:
    """Each client draws c classes without replacement (Ditto's skewed FEMNIST), shape (clients, c)."""
    _check_class_count(per_client, classes)
    return np.argsort(rng.random((clients, classes)), axis=1)[:, :per_client]


def by_classes(labels: Rows, owned: Rows, sizes: Rows, rng: np.random.Generator) -> Partition:
    """Deal every class out among the clients that own it, in proportion to their sizes, without overlap.

    Args:
        labels: class of each row, int64 of shape (n,).
        owned: the classes of each client, shape (clients, c); rows of a class that nobody owns are left out.
        sizes: weight of each client, shape (clients,).
        rng: decides which rows.

    Returns:
        The partition; each client has at least one example of each of its classes.

    Raises:
        DataError: if a class has fewer examples than owners.
    """
    owners = np.full(len(labels), -1, np.int64)
    for label in np.unique(owned):
        rows = rng.permutation(np.flatnonzero(labels == label))
        clients = np.flatnonzero((owned == label).any(1))
        if len(rows) < len(clients):
            raise DataError(
                f"class {label} has {len(rows)} examples and {len(clients)} clients own it, client {clients[-1]} among "
                "them; use fewer clients, or fewer classes per client"
            )
        counts = 1 + apportion(len(rows) - len(clients), sizes[clients].astype(np.float64))
        owners[rows] = np.repeat(clients, counts)
    return Partition.of_owners(owners, len(owned))


def deal_in_turn(labels: Rows, owned: Rows, counts: Rows) -> Partition:
    """Clients read their classes one after another; a class that would run out is read from its start again.

    This is Ditto's generator of Fashion-MNIST: every client gets exactly what it asks for, and rows may belong to
    several clients.

    Args:
        labels: class of each row, int64 of shape (n,).
        owned: the classes of each client, shape (clients, c).
        counts: how many rows of each of them it asks for, shape (clients, c); at most a whole class.

    Returns:
        The partition, each client's rows by class.
    """
    rows = [np.flatnonzero(labels == label) for label in range(int(owned.max()) + 1)]
    at = [0] * len(rows)
    taken: list[Rows] = []
    for label, count in zip(owned.ravel().tolist(), counts.ravel().tolist(), strict=True):
        if at[label] + count > len(rows[label]):
            at[label] = 0
        taken.append(rows[label][at[label] : at[label] + count])
        at[label] += count
    sizes = np.array([len(part) for part in taken]).reshape(owned.shape).sum(1)
    return Partition(np.concatenate(taken), sizes)


def by_dirichlet(labels: Rows, sizes: Rows, alpha: float, rng: np.random.Generator) -> Partition:
    """Each client draws its class proportions from Dirichlet(alpha), and nobody is left empty.

    Hsu, Qi and Brown 2019, https://arxiv.org/abs/1909.06335.

    Classes that are used up are left out of later clients' draws, so the last ones get what remains.

    Args:
        labels: class of each row, int64 of shape (n,).
        sizes: how many rows each client gets, shape (clients,); at most n in sum.
        alpha: small values give few classes per client, large ones approach iid.
        rng: random stream.

    Returns:
        The partition.
    """
    if alpha <= 0:
        raise ConfigError(f"alpha of the Dirichlet distribution is {alpha} and must be above 0; 0.5 is usual")
    classes = int(labels.max()) + 1
    rows = [rng.permutation(np.flatnonzero(labels == label)) for label in range(classes)]
    left = np.array([len(of_class) for of_class in rows])
    used = np.zeros(classes, np.int64)
    taken: list[Rows] = []
    for size in sizes:
        share = np.maximum(rng.dirichlet(np.full(classes, alpha)), 1e-12)
        start, want = used.copy(), int(size)
        while want:
            open_share = share * (used < left)
            draw = np.minimum(rng.multinomial(want, open_share / open_share.sum()), left - used)
            used, want = used + draw, want - int(draw.sum())
        taken += [rows[label][start[label] : used[label]] for label in range(classes)]
    return Partition(np.concatenate(taken), np.asarray(sizes, np.int64))


def at_random(n: int, sizes: Rows, rng: np.random.Generator) -> Partition:
    """Iid: rows in random order, cut by size."""
    return Partition(rng.permutation(n)[: int(sizes.sum())].astype(np.int64), np.asarray(sizes, np.int64))


def by_key(keys: NDArray[np.generic]) -> tuple[Partition, tuple[str, ...]]:
    """A client per value of a natural key (writer, user, vehicle), sorted by the key; and the clients' names."""
    names, owners = np.unique(keys, return_inverse=True)
    return Partition.of_owners(owners.astype(np.int64), len(names)), tuple(str(name) for name in names)


def split_parts(
    partition: Partition, rng: np.random.Generator, shares: tuple[float, float] = (0.08, 0.2)
) -> tuple[Partition, Partition, Partition]:
    """Split every client at random into training, validation and test: 72%, 8% and 20% (Ditto, Appendix G.6).

    Args:
        partition: what each client owns; at least two rows each.
        rng: random stream.
        shares: of validation and test. Both are rounded; a client has at least one test and one training example.

    Returns:
        Three partitions of the same clients.

    Raises:
        DataError: if a client has fewer than two rows.
    """
    small = np.flatnonzero(partition.counts < 2)
    if len(small):
        has = counted(int(partition.counts[small[0]]), "example")
        raise DataError(
            f"client {small[0]} has {has}, and it needs one to train on and one to be tested on, like "
            f"{counted(len(small) - 1, 'other')}; use fewer clients, or leave small ones out"
        )
    mixed = partition.shuffled(rng)
    test = np.maximum(np.floor(shares[1] * mixed.counts + 0.5), 1)
    validation = np.minimum(np.floor(shares[0] * mixed.counts + 0.5), mixed.counts - test - 1)
    from_end = np.repeat(mixed.counts, mixed.counts) - mixed.ranks()
    part = (from_end <= np.repeat(test, mixed.counts)).astype(int)
    part += from_end <= np.repeat(test + validation, mixed.counts)
    return mixed.take(part == 0), mixed.take(part == 1), mixed.take(part == 2)


def hold_out_tenth(partition: Partition) -> tuple[Partition, Partition]:
    """The last tenth of each client's rows, rounded down, as validation (Ditto's programs): (training, validation)."""
    training = np.repeat(partition.counts - partition.counts // 10, partition.counts)
    return partition.take(partition.ranks() < training), partition.take(partition.ranks() >= training)


def _check_class_count(per_client: int, classes: int) -> None:
    if not 1 <= per_client <= classes:
        raise ConfigError(
            f"a client can't have {per_client} of {classes} classes; give a number of classes per client from 1 to "
            f"{classes}"
        )
