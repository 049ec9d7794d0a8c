"""Dataclasses of the library as the options of a command: their fields are options, so nothing is declared twice.

What can be set depends on what is chosen: with ``--data cmnist5 --method spare`` the fields of these two classes are
options too, ``--cmnist5.correlation`` and ``--spare.k-max``. Each such part of a command's options is a `Section`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass, make_dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from holdfast.cli.common.arguments import NOT_CONFIGURATION, check_keys, configurable, refuse_odd_numbers
from holdfast.data.catalog import DATASETS
from holdfast.errors import ConfigError, nearest
from holdfast.files import plain_values
from holdfast.lazy import LazyTable

Data = TypeVar("Data")
_BESIDE = 1000  # files of a folder that a mistyped name is compared with


@dataclass(frozen=True)
class Section:
    """A dataclass whose fields are options of a command.

    Attributes:
        kind: the class.
        default: makes the values of options that are not given; None where some must be given.
        name: what the options begin with, as in ``--spare.k-max``; nothing for ``--epochs``.
    """

    kind: type
    default: Callable[[], Any] | None
    name: str = ""


def parse_sections(
    words: Sequence[str], sections: Mapping[str, Section], *, program: str, about: str
) -> dict[str, Any]:
    """Parse a command line whose options are the fields of dataclasses.

    Args:
        words: the command line.
        sections: the dataclasses, by what the caller calls them, in the order of the help.
        program: the command, for its help.
        about: what stands above the options in its help.

    Returns:
        An instance of every section's class, by the same names.
    """
    # The parser shows the name of a field where it refuses a value: the last word of ours, a method's or data set's.
    words_of = {name: re.split(r"[^\w-]+", name)[-1].replace("-", "_") for name in sections}
    taken = Counter(words_of.values())
    places = {
        name: word if taken[word] == 1 else f"{word}_{place}" for place, (name, word) in enumerate(words_of.items())
    }
    slots = [(places[name], *_slot(section)) for name, section in sections.items()]
    slots.sort(key=lambda slot: slot[2].default_factory is not MISSING)  # fields without a default come first
    parsed: Any = tyro.cli(make_dataclass("Arguments", slots), args=list(words), prog=program, description=about)
    refuse_odd_numbers(parsed)
    return {name: _of_class(section.kind, getattr(parsed, places[name])) for name, section in sections.items()}


def named_data(name: str, table: LazyTable[type[Data]], purpose: str = "") -> tuple[type[Data], Path | None]:
    """The data set that ``--data`` names, and the folder with images where it names one.

    Args:
        name: what was given.
        table: the data sets, of which ``folder`` reads a folder with images.
        purpose: what they are for, in the error message.

    Raises:
        ConfigError: if there is neither such a data set nor such a folder.
    """
    if name in table:
        return table[name], None
    if Path(name).is_dir():
        return table["folder"], Path(name).resolve()
    raise ConfigError(f"there is no data set and no folder {name!r}{purpose}{nearest(name, table)}")


def data_section(cls: Any, folder: Path | None, options: Mapping[str, Any] | None = None) -> Section:
    """The options of a data set.

    Args:
        cls: its class.
        folder: where its images are, if `named_data` found a folder.
        options: other defaults than those of the class.
    """
    if folder is not None:
        return Section(cls, partial(cls, path=folder), cls.name)
    required = any(f.default is MISSING and f.default_factory is MISSING for f in fields(cls))
    return Section(cls, None if required else partial(cls, **(options or {})), cls.name)


@dataclass(frozen=True)
class DataChoice:
    """What ``--data`` names: a data set of a catalog, or data of the user's own at some place.

    Attributes:
        cls: the data set's class.
        place: where the user's own data is; None for a data set of the catalog.
        section: its options.
        recipe: the training settings that go with it.
    """

    cls: Any
    place: str | None
    section: Section
    recipe: Mapping[str, Any]

    @property
    def own_options(self) -> tuple[type, ...]:
        """The class whose fields are options at the top of a configuration file, where the data is the user's own."""
        return () if self.place is None else (self.section.kind,)

    @property
    def named_section(self) -> dict[str, type]:
        """The section of a configuration file that holds its options, where it has one."""
        return {self.section.name: self.section.kind} if self.section.name else {}

    def made(self, parsed: Any) -> Any:
        """The data set with the options that were parsed."""
        return parsed if self.place is None else self.cls(self.place, found_anywhere(parsed))


def data_choice(
    name: str,
    table: LazyTable[Any],
    typed: Sequence[str],
    *,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    purpose: str = "",
) -> DataChoice:
    """What ``--data`` names.

    Args:
        name: what was given: a name in the catalog, a path, or ``hf:NAME``.
        table: the catalog.
        typed: the command line, whose options say what the columns of the user's own data mean.
        options: other defaults than those of the data set's class.
        settings: a configuration file; one of an older run has a section ``folder`` for a folder of images.
        purpose: what the data sets are for, in the error message.

    Raises:
        ConfigError: if it is none of them.
        DataError: if the user's own data can't be read.
    """
    before = bool(settings and "folder" in settings) and Path(name).is_dir()
    if table is DATASETS and name not in table and not before:
        place = own_place(name)
        if place is None:
            raise ConfigError(f"there is no data set, file or folder {name!r}{purpose}{nearest_place(name, table)}")
        from holdfast.data.own.data_set import OwnData
        from holdfast.data.own.options import ReadingOptions

        given, _ = tyro.cli(ReadingOptions, args=list(typed), add_help=False, return_unknown_args=True)
        recipe = OwnData(place, found_anywhere(given)).training_recipe()
        return DataChoice(OwnData, place, Section(ReadingOptions, ReadingOptions), recipe)
    cls, folder = named_data(name, table, purpose)
    return DataChoice(cls, None, data_section(cls, folder, options), cls.recipe)


def found_anywhere(reading: Any) -> Any:
    """Options of reading whose tokenizer, where it is a folder, can be found from any working directory."""
    folder = Path(reading.tokenizer)
    return replace(reading, tokenizer=str(folder.resolve())) if folder.is_dir() else reading


def nearest_place(name: str, names: Iterable[str]) -> str:
    """A clause that offers a file beside the one that isn't there, else a data set's name, see `nearest`."""
    folder = Path(name).parent
    try:
        beside = [str(folder / entry.name) for entry in islice(folder.iterdir(), _BESIDE)]
    except (OSError, ValueError):
        beside = []
    close = nearest(name, beside)
    return close if "did you mean" in close else nearest(name, names)


def own_place(name: str) -> str | None:
    """The place that a name stands for, as it can be found from any working directory; None where there is nothing."""
    if name.startswith("hf:"):
        return name
    try:
        path = Path(name).expanduser()
        if name and path.exists():
            return str(path.resolve())
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, a user that is none
        return None
    return name if ":" in name else None  # an object of the user's own code, my_package.module:make


def configuration(*parts: Any, sections: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a run, as a configuration file holds it.

    Args:
        parts: dataclasses whose fields stand at the top of the file.
        sections: those that have a section of their own, by its name; left out where they have no options.
    """
    top = {name: value for part in parts for name, value in asdict(part).items() if name not in NOT_CONFIGURATION}
    below = {name: options_of(part) for name, part in sections.items()}
    return dict(plain_values({**top, **{name: options for name, options in below.items() if options}}))


def check_configuration(
    settings: Mapping[str, Any], parts: Sequence[type], sections: Mapping[str, type], file: str | None
) -> None:
    """Refuse keys of a configuration file that nothing would read.

    Args:
        settings: what the file says.
        parts: dataclasses whose fields stand at its top.
        sections: dataclasses that have a section of their own, by its name.
        file: its name.

    Raises:
        ConfigError: if there is another key; the message offers the nearest.
    """
    known = {name: {_option(f) for f in _settable(kind)} for name, kind in sections.items()}
    check_keys(settings, configurable(*parts), known, file)


def options_of(part: Any) -> dict[str, Any]:
    """The options of an instance and their values; a field called ``lambda_`` is the option ``lambda``."""
    values = {_option(f): getattr(part, f.name) for f in _settable(type(part))}
    return {name: asdict(value) if is_dataclass(value) else value for name, value in values.items()}  # type: ignore[arg-type]


def fields_of(part: Any) -> dict[str, Any]:
    """The fields that an instance was made with, and their values."""
    return {f.name: getattr(part, f.name) for f in _settable(type(part))}


def _settable(cls: type) -> list[Field[Any]]:
    return [f for f in fields(cls) if f.init and not f.name.startswith("_")]


def _option(option: Field[Any]) -> str:
    return option.name.rstrip("_")


def _slot(section: Section) -> tuple[Any, Any]:
    """The type and the default of a field that stands for a section, as tyro reads them."""
    kind, default = _for_tyro(section.kind), section.default
    if default is not None and kind is not section.kind:
        default = partial(_with_fields_of, kind, default)
    own = field() if default is None else field(default_factory=default)
    return Annotated[kind, tyro.conf.arg(name=section.name)], own


def _with_fields_of(kind: Any, default: Callable[[], Any]) -> Any:
    return kind(**fields_of(default()))


def _for_tyro(cls: Any) -> Any:
    """The class with an option called ``lambda`` for a field called ``lambda_``; itself where it has none."""
    if all(_option(f) == f.name for f in _settable(cls)):
        return cls
    hints = get_type_hints(cls, include_extras=True)
    renamed: list[tuple[str, Any, Any]] = [
        (f.name, Annotated[hints[f.name], tyro.conf.arg(name=_option(f))], _default_of(f)) for f in _settable(cls)
    ]
    frozen: bool = cls.__dataclass_params__.frozen
    return make_dataclass(cls.__name__, renamed, bases=(cls,), frozen=frozen, namespace={"__doc__": cls.__doc__})


def _default_of(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return field(default_factory=option.default_factory)
    return field(default=option.default)


def _of_class(cls: Any, parsed: Any) -> Any:
    """What was parsed, as the class that the library knows."""
    return parsed if type(parsed) is cls else cls(**fields_of(parsed))
