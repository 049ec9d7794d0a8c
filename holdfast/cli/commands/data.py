"""`holdfast data`: which data sets there are, what is in one, and how to get its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

import holdfast.data
from holdfast.data import catalog
from holdfast.data.catalog import DATASETS, CatalogEntry, DataSet, describe, get, status
from holdfast.data.clients.federations import FEDERATIONS, FederatedData
from holdfast.errors import ConfigError, HoldfastError, nearest

if TYPE_CHECKING:
    from holdfast.data import Clients


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


def _client_table(clients: Clients) -> Table:
    """How examples and classes are spread over clients."""
    summary = clients.summary()
    table = Table(title=f"{summary.clients:,} clients, {clients.classes} classes, {clients.fingerprint()}")
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
    table.add_column("group")
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


def main(arguments: list[str]) -> int:
    """Run the command."""
    tyro.extras.subcommand_cli_from_dict(
        {"list": list_, "info": info, "get": get_}, args=arguments, prog="holdfast data"
    )
    return 0


def _presence(cls: type[CatalogEntry], root: Path) -> str:
    if not cls.files:
        return "given by path" if cls.name in ("folder", "arrays") else "built in"
    here = [path is not None for path in status(cls, root).values()]
    return "[green]yes[/]" if all(here) else "[yellow]partly[/]" if any(here) else "no"
