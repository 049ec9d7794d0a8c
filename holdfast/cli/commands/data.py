"""`holdfast data`: which data sets there are, what is in one, how to get its files, and whether they are whole."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

import holdfast.data
from holdfast.data import catalog
from holdfast.data.catalog import DATASETS, CatalogEntry, DataSet, describe, get, status
from holdfast.data.clients.federations import FEDERATIONS, FederatedData
from holdfast.errors import ConfigError, HoldfastError, counted, nearest

if TYPE_CHECKING:
    from holdfast.data import Clients
    from holdfast.data.check import Finding


def list_(data_root: Path | None = None) -> None:
    """List all data sets and whether their files are here.

    Args:
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
    """
    table = Table(box=None, header_style="bold")
    for column in ("name", "here", "what"):
        table.add_column(column)
    for name, cls in sorted(DATASETS.items()):
        table.add_row(name, _presence(cls, catalog.data_root(data_root)), cls.summary)
    table.add_section()
    for name, federated in sorted(FEDERATIONS.items()):
        table.add_row(f"{name} (clients)", _presence(federated, catalog.data_root(data_root)), federated.summary)
    console = Console()
    console.print(table)
    console.print(f"\nData root: {catalog.data_root(data_root)}", highlight=False, soft_wrap=True)


def info(name: tyro.conf.Positional[str], data_root: Path | None = None, clients: bool = False) -> None:
    """Describe a data set: files, published training settings, and how many examples each group or client has.

    Args:
        name: the data set.
        data_root: where data sets live.
        clients: of two data sets with this name, describe the federated one.
    """
    cls, place, console = _find(name, clients), catalog.data_root(data_root), Console()
    console.print(f"[bold]{name}[/]: {cls.summary}", highlight=False)
    for wanted, path in status(cls, place).items():
        mark = "[green]here[/]   " if path else "[red]missing[/]"
        console.print(f"  {mark} {path or place / wanted}", highlight=False, soft_wrap=True)
    if cls.by_hand:
        console.print(f"  {cls.by_hand}", highlight=False)
    recipe = dataclasses.asdict(cls.recipe) if issubclass(cls, FederatedData) else cls.recipe
    if recipe:
        console.print("recipe: " + ", ".join(f"{key} {value}" for key, value in recipe.items()), highlight=False)
    try:
        loaded = cls().load(place)
    except (HoldfastError, TypeError) as error:
        console.print(f"The examples can't be counted: {error}", highlight=False)
        return
    console.print(
        _client_table(loaded) if isinstance(loaded, holdfast.data.Clients) else _group_table(describe(loaded))
    )


def read_(arguments: list[str]) -> None:
    """Read data of your own as `holdfast fit` would, and say what it is; nothing is trained or written."""
    from holdfast.cli.common.notes import show_notes
    from holdfast.cli.common.sections import Section, own_place, parse_sections
    from holdfast.data.own.data_set import OwnData
    from holdfast.data.own.options import ReadingOptions

    sections = {"place": Section(OwnPlace, None), "reading": Section(ReadingOptions, ReadingOptions)}
    about = (
        "Read data of your own as `holdfast fit` would and say what it is: what columns were taken for, what was left "
        "out or filled, how many examples each group has, and the settings to begin with. Nothing is trained or "
        "written."
    )
    parsed = parse_sections(arguments, sections, program="holdfast data read", about=about)
    named, console = parsed["place"].place, Console()
    place = own_place(named)
    if place is None:
        raise ConfigError(f"there is no file or folder {named!r}; give a path, hf:NAME or my_package.module:make")
    data = OwnData(place, parsed["reading"])
    splits = data.load(Path())
    show_notes(splits.notes, splits.name, console)
    recipe = ", ".join(f"{key} {value}" for key, value in data.training_recipe().items())
    console.print(f"to begin with: {recipe}", highlight=False)
    console.print(_group_table(describe(splits)))


@dataclasses.dataclass(frozen=True)
class OwnPlace:
    """What is read.

    Attributes:
        place: a table, a folder of images, an npz file, hf:NAME, or my_package.module:make.
    """

    place: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLACE")]


def _client_table(clients: Clients) -> Table:
    """How examples and classes are spread over clients."""
    summary = clients.summary()
    table = Table(title=f"{counted(summary.clients, 'client')}, {clients.classes} classes, {clients.fingerprint()}")
    for column in ("per client", "total", "mean", "median", "smallest", "largest"):
        table.add_column(column, justify="left" if column == "per client" else "right")
    for row in ("train", "validation", "test", "classes_per_client"):
        counts = getattr(summary, row)
        table.add_row(
            "classes" if row == "classes_per_client" else row,
            "" if row == "classes_per_client" else f"{counts.total:,}",
            f"{counts.mean:.1f}",
            f"{counts.median:.1f}",
            f"{counts.smallest:,}",
            f"{counts.largest:,}",
        )
    return table


def _group_table(counts: dict[str, dict[str, int]]) -> Table:
    """How many examples each part has of each group."""
    table = Table()
    table.add_column("group", overflow="fold")
    for part in counts:
        table.add_column(part, justify="right")
    for group in counts["train"]:
        table.add_row(group, *(f"{counts[part].get(group, 0):,}" for part in counts))
    return table


def _find(name: str, clients: bool = False) -> type[DataSet] | type[FederatedData]:
    """The data set called `name`; the federated one where there is no other, or where it is asked for."""
    if name in FEDERATIONS and (clients or name not in DATASETS):
        return FEDERATIONS[name]
    if clients or name not in DATASETS:
        known = FEDERATIONS if clients else {*DATASETS, *FEDERATIONS}
        raise ConfigError(f"there is no data set {name!r}{nearest(name, known)}")
    return DATASETS[name]


def get_(name: tyro.conf.Positional[str], data_root: Path | None = None) -> None:
    """Fetch a data set's files that are missing; an interrupted transfer is continued.

    Args:
        name: the data set.
        data_root: where data sets live.
    """
    cls, place, console = _find(name), catalog.data_root(data_root), Console()
    if not cls.files and not cls.by_hand:
        console.print(f"{name} needs no files.", highlight=False)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as progress:
        bars: dict[str, int] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in bars:
                bars[file] = progress.add_task(Path(file).name, total=total)
            progress.update(bars[file], completed=done, total=total)  # type: ignore[arg-type]

        for path in get(cls, place, show):
            console.print(f"[green]here[/] {path}", highlight=False, soft_wrap=True)


def check_(names: tyro.conf.Positional[tuple[str, ...]] = (), data_root: Path | None = None, full: bool = False) -> int:
    """Check what is there: whole by sizes and checksums, and usable: it opens, and a sample of its images decodes.

    Ends with exit code 1 if something that is there is damaged.

    Args:
        names: the data sets; all that need files, and public weights, by default.
        data_root: where data sets live.
        full: read every file and decode every image, which takes minutes for large sets.
    """
    place, console = catalog.data_root(data_root), Console()
    table = Table(box=None, header_style="bold")
    for column in ("name", "state", "what is there, and what to do", "seconds"):
        table.add_column(column, justify="right" if column == "seconds" else "left", overflow="fold")
    colours = {"usable": "green", "damaged": "red", "incomplete": "yellow", "unknown": "yellow", "absent": "dim"}
    states = list[str]()
    for name, check in _checks(names, place, full=full).items():
        with console.status(f"checking {name}"):
            start = time.perf_counter()
            finding = check()
        states.append(finding.state)
        colour = colours[finding.state]
        said = escape("; ".join(filter(None, (finding.what, finding.remedy))))
        table.add_row(name, f"[{colour}]{finding.state}[/]", said, f"{time.perf_counter() - start:.1f}")
    console.print(table, highlight=False)
    console.print(f"\nData root: {place}", highlight=False, soft_wrap=True)
    return int("damaged" in states)


def _checks(names: Sequence[str], root: Path, *, full: bool) -> dict[str, Callable[[], Finding]]:
    """What each check is called, and the check: of data sets, of federated ones, of math problems, of public weights.

    Raises:
        ConfigError: if a name is none of them.
    """
    from holdfast.data.check import check_files
    from holdfast.data.sets.text.math_problems import FILES, load_math_problems
    from holdfast.models.starting_weights import IMAGENET_WEIGHTS

    known: dict[str, Callable[[], Finding]] = {}
    for label, table in (("{}", DATASETS), ("{} (clients)", FEDERATIONS)):
        for name in sorted(table):
            cls = table[name]
            if names or cls.files:
                known[label.format(name)] = partial(_check_entry, cls, root, full=full)
    for name, file in FILES.items():

        def count(name: str = name) -> str:
            return f"{len(load_math_problems(name, root)):,} problems"

        remedy = "it is fetched when it is used"
        known[f"{name} (problems)"] = partial(check_files, (file,), root, remedy, count, full=full)
    for model, file_name in IMAGENET_WEIGHTS.items():
        known[f"{model} (weights)"] = partial(_check_weights, model, root / "weights" / file_name)
    short = {label: label.partition(" ")[0] for label in known}
    for name in names:
        if name not in short.values():
            raise ConfigError(f"there is no data set {name!r}{nearest(name, short.values())}")
    return {label: check for label, check in known.items() if not names or short[label] in names}


def _check_entry(cls: type[DataSet] | type[FederatedData], root: Path, *, full: bool) -> Finding:
    """The check of a set of the catalog, of which those that are given by path can't be made without options."""
    from holdfast.data.check import Finding, check_entry

    missing = dataclasses.MISSING
    required = [field.name for field in dataclasses.fields(cls) if field.default is field.default_factory is missing]
    if required:
        return Finding("unknown", f"your own files, by --{cls.name}.{required[0]}")
    return check_entry(cls, root, full=full)


def _check_weights(model: str, path: Path) -> Finding:
    from holdfast.data.check import Finding
    from holdfast.models.starting_weights import IMAGENET_URL, check_public_weights

    if not path.exists():
        return Finding("absent", "", f"download {IMAGENET_URL}{path.name} to {path}, for --weights imagenet")
    try:
        check_public_weights(path)
    except HoldfastError as error:
        return Finding("damaged", str(error))
    return Finding("usable", f"public weights of {model}; the checksum in its name is right")


def main(arguments: list[str]) -> int:
    """Run the command."""
    if arguments[:1] == ["read"]:  # its options are those of a dataclass, without a prefix
        read_(arguments[1:])
        return 0
    code = tyro.extras.subcommand_cli_from_dict(
        {"list": list_, "info": info, "read": read_, "get": get_, "check": check_},
        args=arguments,
        prog="holdfast data",
    )
    return code or 0


def _presence(cls: type[CatalogEntry], root: Path) -> str:
    if not cls.files:
        return "given by path" if cls.name in ("folder", "arrays") else "built in"
    here = [path is not None for path in status(cls, root).values()]
    return "[green]yes[/]" if all(here) else "[yellow]partly[/]" if any(here) else "no"
