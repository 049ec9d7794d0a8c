"""The catalog of data sets: each is a frozen dataclass whose fields are its options and whose `load` gives `Splits`.

The dataclass is the single source of the options: the command line, configuration files and `load` all read its
fields. A data set of your own is one class with `@register`; one of the library also has a line in `DATASETS`, so that
its module is imported when it is used.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from holdfast.data.remote_files import Progress, RemoteFile
from holdfast.errors import ConfigError, DataError, nearest
from holdfast.lazy import LazyTable

if TYPE_CHECKING:
    from holdfast.data.examples import Examples, Splits


@dataclass(frozen=True)
class CatalogEntry:
    """What a data set of any kind has: a name, files, and fields that are its options.

    Class attributes:
        name: what users type.
        summary: one line for the list of data sets.
        files: what must be under the data root, and where it comes from.
        by_hand: how to get the files where they can't be fetched automatically.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    files: ClassVar[tuple[RemoteFile, ...]] = ()
    by_hand: ClassVar[str] = ""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for option in fields(self):
            allowed, value = get_args(hints[option.name]), getattr(self, option.name)
            if get_origin(hints[option.name]) is Literal and value not in allowed:
                raise ConfigError(
                    f"data set {self.name!r} has no {option.name} {value!r}{nearest(str(value), allowed)}"
                )

    @classmethod
    def locate(cls, root: Path, *candidates: str) -> Path:
        """The first of `candidates` that is under `root`, or an error that says how to get it."""
        for candidate in candidates:
            if (root / candidate).exists():
                return root / candidate
        fix = cls.by_hand or f"run `holdfast data get {cls.name}`"
        raise DataError(
            f"data set {cls.name!r} needs {root / candidates[0]}, which isn't there; {fix}, or set HOLDFAST_DATA or "
            "--data-root to the folder that has it"
        )


@dataclass(frozen=True)
class DataSet(CatalogEntry, ABC):
    """A data set by name. Subclasses are frozen dataclasses; their fields are the data set's options.

    Class attributes:
        recipe: the published training settings: model, weights, and fields of `holdfast.training.Training`.
    """

    recipe: ClassVar[Mapping[str, object]] = {}

    def training_recipe(self) -> Mapping[str, object]:
        """The settings to begin with: the published ones; of a user's own data, those that suit what it is."""
        return self.recipe

    @abstractmethod
    def load(self, root: Path) -> Splits:
        """Read the three parts.

        Args:
            root: the data root, see `data_root`.

        Returns:
            The parts, whose ids are unique over all three.
        """


DataSetType = TypeVar("DataSetType", bound=type[DataSet])
EntryType = TypeVar("EntryType", bound=CatalogEntry)
Options = TypeVar("Options")

#: Every data set by name.
DATASETS: LazyTable[type[DataSet]] = LazyTable(
    "data set",
    {
        "digits": "holdfast.data.sets.images.digits:Digits",
        "arrays": "holdfast.data.readers.arrays:Arrays",
        "folder": "holdfast.data.readers.folder:Folder",
        "waterbirds": "holdfast.data.readers.folder:Waterbirds",
        "mnist": "holdfast.data.readers.idx:Mnist",
        "fashion-mnist": "holdfast.data.readers.idx:FashionMnist",
        "celeba": "holdfast.data.sets.images.celeba:CelebA",
        "cmnist5": "holdfast.data.sets.images.coloured:CMnist5",
        "coloured-digits": "holdfast.data.sets.images.coloured:ColouredDigits",
        "coloured-digits5": "holdfast.data.sets.images.coloured:ColouredDigits5",
        "cifar10": "holdfast.data.sets.images.cifar:Cifar10",
        "patches": "holdfast.data.sets.images.patches:PatchData",
        "restricted-imagenet": "holdfast.data.sets.images.restricted_imagenet:RestrictedImageNet",
        "spuco-mnist": "holdfast.data.sets.images.spuco_mnist:SpucoMnist",
        "urbancars": "holdfast.data.sets.images.urbancars:UrbanCars",
        "civilcomments": "holdfast.data.sets.text.civilcomments:CivilComments",
        "multinli": "holdfast.data.sets.text.multinli:MultiNli",
        "snli": "holdfast.data.sets.text.snli:Snli",
    },
)


def register(cls: DataSetType) -> DataSetType:
    """Class decorator that puts a data set into the catalog; the library's own are in it before they are imported."""
    if cls.name in DATASETS and not DATASETS.awaits(cls.name, cls):
        raise ConfigError(f"there are two data sets named {cls.name!r}; rename one")
    DATASETS[cls.name] = cls
    return cls


def find(name: str) -> type[DataSet]:
    """The data set called `name`.

    Raises:
        ConfigError: if there is none; the message offers the nearest name.
    """
    return DATASETS.find(name)


def load(name: str, root: Path | str | None = None, **options: Any) -> Splits:
    """Read a data set by name.

    Args:
        name: its name in the catalog.
        root: the data root, see `data_root`.
        options: fields of the data set's dataclass.

    Returns:
        The three parts.

    Example:
        >>> load("digits", seed=1).train.n_classes
        10
    """
    return configured(find(name), options).load(data_root(root))


def configured(cls: type[EntryType], options: Mapping[str, Any]) -> EntryType:
    """A data set with these options.

    Args:
        cls: the data set.
        options: values of its fields.

    Raises:
        ConfigError: if an option is unknown or one is missing; the message offers the nearest name.
    """
    return configured_options(cls, options, f"data set {cls.name!r}")


def configured_options(cls: type[Options], options: Mapping[str, Any], owner: str) -> Options:
    """A dataclass made from options by name.

    Args:
        cls: the dataclass.
        options: values of its fields.
        owner: whose options they are, for messages.

    Raises:
        ConfigError: if an option is unknown or one is missing; the message offers the nearest name.
    """
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise ConfigError(f"{owner} has no option {option!r}{nearest(option, known)}")
    for field in known.values():
        if field.name not in options and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{owner} needs the option {field.name!r}")
    return cls(**options)


def data_root(explicit: Path | str | None = None) -> Path:
    """Where data sets live: `explicit`, else the environment's HOLDFAST_DATA, else ``~/.cache/holdfast/data``."""
    chosen = explicit or os.environ.get("HOLDFAST_DATA") or Path("~/.cache/holdfast/data")
    return Path(chosen).expanduser()


def status(cls: type[CatalogEntry], root: Path) -> dict[str, Path | None]:
    """Which files of a data set are present: for each wanted path, where it was found, or None."""
    return {file.unpacks_to or file.path: file.found(root) for file in cls.files}


def get(cls: type[CatalogEntry], root: Path, progress: Progress | None = None) -> list[Path]:
    """Fetch the files of a data set that are missing.

    Args:
        cls: the data set.
        root: the data root.
        progress: told how far each transfer is.

    Returns:
        Where the files are.

    Raises:
        DataError: if a file can't be had; for data behind a licence, it says where to get it.
    """
    from holdfast.data.download import fetch  # noqa: PLC0415 - what lists data sets transfers nothing

    missing = [file for file in cls.files if file.found(root) is None]
    if cls.by_hand and missing:
        raise DataError(f"data set {cls.name!r} can't be fetched automatically: {cls.by_hand} under {root}")
    return [fetch(file, root, progress) for file in cls.files]


def describe(splits: Splits) -> dict[str, dict[str, int]]:
    """How many examples each part has of each group (of each class where groups are unknown), empty ones included."""
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {part: _counts(examples) for part, examples in parts.items()}


def _counts(examples: Examples) -> dict[str, int]:
    if examples.n_groups:
        return dict(zip(examples.group_names, examples.group_counts().tolist(), strict=True))
    return dict(zip(examples.class_names, examples.class_counts().tolist(), strict=True))
