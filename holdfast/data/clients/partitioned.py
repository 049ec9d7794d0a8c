"""Any pooled data set dealt out to clients: by classes, by Dirichlet draws, by a natural key, or iid.

`partition(examples, how)` is the function; `how` says how, and each way is a small value of its own. The data set
``digits-clients`` needs no download and trains in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.data.catalog import configured, find
from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import (
    Partition,
    Sizes,
    at_random,
    by_classes,
    by_dirichlet,
    by_key,
    check_client_count,
    draw_sizes,
    random_classes,
    rolling_classes,
    split_parts,
)
from holdfast.data.examples import Examples, Splits
from holdfast.data.sets.images.digits import bundled_digits
from holdfast.errors import DataError
from holdfast.streams import data_stream

_CHUNK = 4096
_CLASSES_EACH = 5


class Partitioner(Protocol):
    """A way to deal out examples."""

    def deal(self, examples: Examples, rng: np.random.Generator) -> tuple[Partition, tuple[str, ...]]:
        """The rows of each client, and the clients' names where they have some."""
        ...


@dataclass(frozen=True)
class ByClasses:
    """Each client owns a few classes.

    Attributes:
        clients: how many.
        classes: classes per client; by default five, or all where there are fewer.
        assignment: client u gets the classes from u on, or draws its classes.
        sizes: how unequal clients are.
    """

    clients: int = 50
    classes: int | None = None
    assignment: Literal["rolling", "random"] = "rolling"
    sizes: Sizes = "lognormal"

    def deal(self, examples: Examples, rng: np.random.Generator) -> tuple[Partition, tuple[str, ...]]:
        """By classes."""
        check_client_count(self.clients, len(examples))
        each = min(_CLASSES_EACH, examples.n_classes) if self.classes is None else self.classes
        if self.assignment == "rolling":
            owned = rolling_classes(self.clients, each, examples.n_classes)
        else:
            owned = random_classes(self.clients, each, examples.n_classes, rng)
        sizes = draw_sizes(self.sizes, self.clients, len(examples), rng)
        return by_classes(examples.labels.numpy(), owned, sizes, rng), ()


@dataclass(frozen=True)
class ByDirichlet:
    """Each client draws its class proportions.

    Attributes:
        clients: how many.
        alpha: small values give few classes per client.
        sizes: how unequal clients are.
    """

    clients: int = 50
    alpha: float = 0.5
    sizes: Sizes = "equal"

    def deal(self, examples: Examples, rng: np.random.Generator) -> tuple[Partition, tuple[str, ...]]:
        """By Dirichlet draws."""
        sizes = draw_sizes(self.sizes, self.clients, len(examples), rng)
        return by_dirichlet(examples.labels.numpy(), sizes, self.alpha, rng), ()


@dataclass(frozen=True)
class AtRandom:
    """Every client gets a random sample.

    Attributes:
        clients: how many.
        sizes: how unequal clients are.
    """

    clients: int = 50
    sizes: Sizes = "equal"

    def deal(self, examples: Examples, rng: np.random.Generator) -> tuple[Partition, tuple[str, ...]]:
        """Iid."""
        return at_random(len(examples), draw_sizes(self.sizes, self.clients, len(examples), rng), rng), ()


@dataclass(frozen=True)
class ByKey:
    """A client per source, attribute or group of the examples.

    Attributes:
        key: which of the examples' vectors is the key.
    """

    key: Literal["sources", "attributes", "groups"] = "sources"

    def deal(self, examples: Examples, rng: np.random.Generator) -> tuple[Partition, tuple[str, ...]]:
        """By the key."""
        keys: Tensor | None = getattr(examples, self.key)
        if keys is None:
            raise DataError(
                f"these examples have no {self.key}, so they can't be distributed by it; choose another way"
            )
        partition, values = by_key(keys.numpy())
        names = {"attributes": examples.attribute_names, "groups": examples.group_names, "sources": ()}[self.key]
        return partition, tuple(names[int(value)] for value in values) if names else values


def partition(examples: Examples, how: Partitioner, seed: int = 0) -> Clients:
    """Deal out pooled examples to clients, each split 72/8/20 (Ditto, Appendix G.6).

    Args:
        examples: the pooled set; its inputs are gathered, so they are as a model takes them.
        how: the way, such as ``ByClasses(clients=100, classes=2)``.
        seed: decides what is drawn.

    Returns:
        The clients.

    Raises:
        DataError: if a client would go without training or test data; it is named.

    Example:
        >>> import torch
        >>> pooled = Examples.of(torch.randn(100, 2), torch.arange(100) % 4)
        >>> len(partition(pooled, ByClasses(clients=8, classes=2)))
        8
    """
    dealt, names = how.deal(examples, data_stream(seed, "partition"))
    inputs = all_inputs(examples)
    train, validation, test = (
        part.gather(inputs, examples.labels) for part in split_parts(dealt, data_stream(seed, "72/8/20"))
    )
    return Clients(train, validation, test, examples.n_classes, names=names).check()


def pooled(splits: Splits) -> Examples:
    """Training, validation and test examples as one set: what clients get is split anew for each of them."""
    parts = (splits.train, splits.validation, splits.test)

    def joined(key: str) -> Tensor | None:
        vectors = [getattr(part, key) for part in parts]
        return None if any(vector is None for vector in vectors) else torch.cat(vectors)

    return Examples.of(
        torch.cat([all_inputs(part) for part in parts]),
        torch.cat([part.labels for part in parts]),
        ids=torch.cat([part.ids for part in parts]),
        class_names=splits.train.class_names,
        attributes=joined("attributes"),
        groups=joined("groups"),
        sources=joined("sources"),
        attribute_names=splits.train.attribute_names or None,
        group_names=splits.train.group_names or None,
    )


def all_inputs(examples: Examples) -> Tensor:
    """The inputs of all examples as one tensor, as a model takes them.

    Raises:
        DataError: if they are named tensors.
    """
    batches = [examples.inputs.gather(rows) for rows in torch.split(torch.arange(len(examples)), _CHUNK)]
    if not all(isinstance(batch, Tensor) for batch in batches):
        raise DataError("named inputs such as tokens and masks can't be distributed over clients; give one tensor")
    return torch.cat([batch for batch in batches if isinstance(batch, Tensor)])


@register_federation
@dataclass(frozen=True)
class Partitioned(FederatedData):
    """Any data set of `holdfast data list`, dealt out to clients.

    Attributes:
        source: the pooled data set's name.
        partition: each client has a few classes, draws class proportions, is a random sample, or is one group.
        clients: how many; a partition by group has as many as there are groups.
        classes_per_client: for a partition by classes; by default five, or all where there are fewer.
        alpha: of the Dirichlet distribution; small values give few classes per client.
        sizes: how unequal clients are.
    """

    name = "partitioned"
    summary = "any other data set, dealt out to clients by classes, Dirichlet draws, groups or at random"
    recipe: ClassVar[Any] = TrainingRecipe("mlp", 0.1, 16, rounds=200, cohort=10)

    source: str = "digits"
    partition: Literal["classes", "dirichlet", "iid", "groups"] = "classes"
    clients: int = 50
    classes_per_client: int | None = None
    alpha: float = 0.5
    sizes: Sizes = "lognormal"

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read the pooled data set with its default options and deal it out."""
        return partition(pooled(configured(find(self.source), {}).load(root)), self.how(), seed)

    def how(self) -> Partitioner:
        """The way that the options say."""
        if self.partition == "classes":
            return ByClasses(self.clients, self.classes_per_client, sizes=self.sizes)
        if self.partition == "dirichlet":
            return ByDirichlet(self.clients, self.alpha, self.sizes)
        return AtRandom(self.clients, self.sizes) if self.partition == "iid" else ByKey("groups")


@register_federation
@dataclass(frozen=True)
class DigitsClients(FederatedData):
    """The digits that come with scikit-learn over clients that know five digits each.

    Attributes:
        clients: how many.
        classes_per_client: digits that a client has examples of.
    """

    name = "digits-clients"
    summary = "1,797 handwritten digits over 50 clients of 5 digits each; bundled, no download"
    recipe: ClassVar[Any] = TrainingRecipe("softmax", 0.3, 16, rounds=200, cohort=10)

    clients: int = 50
    classes_per_client: int = 5

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Deal out the bundled digits; `root` isn't looked at."""
        images, digits = bundled_digits()
        whole = Examples.of(images[:, None], digits)
        return partition(whole, ByClasses(self.clients, self.classes_per_client), seed)
