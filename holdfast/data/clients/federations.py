"""The catalog of federated data sets: each is a frozen dataclass whose `load` gives `Clients`.

Like `holdfast.data.catalog`, with a recipe for federations: the published settings of training (Ditto, Appendix F.1 and
G.4). Any data set of the other catalog can be dealt out to clients too, see `holdfast.data.clients.partitioned`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from holdfast.data.catalog import DATASETS, CatalogEntry, configured, data_root
from holdfast.errors import ConfigError, nearest
from holdfast.lazy import LazyTable

if TYPE_CHECKING:
    from holdfast.data.clients.clients import Clients


@dataclass(frozen=True)
class TrainingRecipe:
    """How a federation is trained on a data set.

    Attributes:
        model: a name of `holdfast.models.MODELS`.
        learning_rate: step size of clients, for the global and the personal model.
        batch_size: examples per step.
        rounds: T.
        cohort: m, clients per round.
        local_steps: steps of a client in a round; 0 where `local_epochs` counts.
        local_epochs: passes over a client's data in a round; 0 where `local_steps` counts.
        halve_every: rounds after which the step size is halved; 0 never.
        weak: lambdas that a client chooses from when the attack isn't strong.
        strong: lambdas that it chooses from under a strong attack.
        fixed: lambdas of the rows with one lambda for all.
        optimizer: of clients.
        weights: to start from, see `holdfast.models.build`; none where it is empty.
        finetune_epochs: passes over a client's data when a trained model is fine-tuned.
    """

    model: str
    learning_rate: float
    batch_size: int
    rounds: int
    cohort: int
    local_steps: int = 2
    local_epochs: int = 0
    halve_every: int = 0
    weak: tuple[float, ...] = (0.1, 1.0, 2.0)
    strong: tuple[float, ...] = (0.05, 0.1, 0.2)
    fixed: tuple[float, ...] = (0.1, 1.0, 2.0)
    optimizer: Literal["sgd", "adam"] = "sgd"
    weights: str = ""
    finetune_epochs: int = 50


@dataclass(frozen=True)
class FederatedData(CatalogEntry, ABC):
    """A federated data set by name. Subclasses are frozen dataclasses; their fields are its options.

    Class attributes:
        recipe: the published settings.
    """

    recipe: ClassVar[TrainingRecipe]

    @abstractmethod
    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read or generate all clients' data.

        Args:
            root: the data root, see `holdfast.data.data_root`.
            seed: decides what is drawn at random: which clients, which rows are held out.

        Returns:
            The clients, each with training data.
        """


FederatedType = TypeVar("FederatedType", bound=type[FederatedData])

#: Every federated data set by name.
FEDERATIONS: LazyTable[type[FederatedData]] = LazyTable(
    "federated data set",
    {
        "partitioned": "holdfast.data.clients.partitioned:Partitioned",
        "digits-clients": "holdfast.data.clients.partitioned:DigitsClients",
        "celeba-blond": "holdfast.data.sets.federated.celebrity_clients:CelebrityClients",
        "bar": "holdfast.data.sets.federated.bar_clients:BarClients",
        "celeba-leaf": "holdfast.data.sets.federated.celeba_leaf:CelebaLeaf",
        "chitchat": "holdfast.data.sets.federated.chitchat:ChitChat",
        "femnist": "holdfast.data.sets.federated.femnist:Femnist",
        "femnist-skewed": "holdfast.data.sets.federated.femnist:FemnistSkewed",
        "insteval": "holdfast.data.sets.federated.insteval:Ratings",
        "painted-mnist": "holdfast.data.sets.federated.painted_clients:PaintedMnist",
        "painted-digits": "holdfast.data.sets.federated.painted_clients:PaintedDigits",
        "painted-coil20": "holdfast.data.sets.federated.painted_clients:PaintedCoil",
        "seglearn": "holdfast.data.sets.federated.seglearn:SmartWatches",
        "stackoverflow": "holdfast.data.sets.federated.stackoverflow:StackOverflow",
        "surrogate": "holdfast.data.sets.federated.surrogate:Surrogate",
        "synthetic-many": "holdfast.data.sets.federated.surrogate:SyntheticMany",
        "vehicle": "holdfast.data.sets.federated.vehicle:Vehicle",
        "fashion-mnist": "holdfast.data.sets.federated.fashion:FederatedFashion",
    },
)


def register_federation(cls: FederatedType) -> FederatedType:
    """Class decorator that puts a federated data set into the catalog; the library's own are in it already."""
    if cls.name in FEDERATIONS and not FEDERATIONS.awaits(cls.name, cls):
        raise ConfigError(f"there are two federated data sets named {cls.name!r}; rename one")
    FEDERATIONS[cls.name] = cls
    return cls


def federation(name: str, **options: Any) -> FederatedData:
    """The federated data set called `name`, or the pooled one of that name, to be dealt out to clients.

    Args:
        name: a key of `FEDERATIONS` or of `holdfast.data.DATASETS`.
        options: fields of its dataclass; of `holdfast.data.clients.partitioned.Partitioned` for a pooled set.

    Raises:
        ConfigError: if there is none; the message offers the nearest name.

    Example:
        >>> federation("digits", partition="dirichlet", clients=20).name
        'partitioned'
    """
    if name in FEDERATIONS:
        return configured(FEDERATIONS[name], options)
    if name in DATASETS:
        return configured(FEDERATIONS["partitioned"], {"source": name, **options})
    raise ConfigError(
        f"there is no federated data set, file or folder {name!r}{nearest(name, {*FEDERATIONS, *DATASETS})}"
    )


def load_federation(name: str, root: Path | str | None = None, seed: int = 0, **options: Any) -> Clients:
    """Read a federated data set by name.

    Args:
        name: see `federation`.
        root: the data root, see `holdfast.data.data_root`.
        seed: decides what is drawn at random.
        options: fields of its dataclass.

    Returns:
        The clients.
    """
    return federation(name, **options).load(data_root(root), seed)
