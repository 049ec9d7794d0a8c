"""``holdfast reproduce DOCUMENT --estimate``: what a document's scale needs, and which of its files are here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.papers.engine.experiment import Scale

if TYPE_CHECKING:
    from holdfast.papers.engine.estimate import ExperimentNeed


def show_needs(console: Console, name: str | None, scale: Scale, data_root: Path | None) -> int:
    """Print what the experiments of a document need, or of all documents, or one experiment alone.

    Args:
        console: where to.
        name: a document or an experiment; all documents by default.
        scale: usually ``paper``.
        data_root: where data sets live.

    Returns:
        The exit code, 0.
    """
    from holdfast.data.catalog import data_root as root_of
    from holdfast.papers.engine.catalog import PAPERS, experiments_of, find
    from holdfast.papers.engine.estimate import TERAFLOPS, needs

    root = root_of(data_root)
    chosen = [name] if name else [*PAPERS]
    found = [need for each in chosen for need in needs((find(each),) if "/" in each else experiments_of(each), scale)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("experiment", "cells", "shared", "GPU-hours", "processor-hours", "memory"):
        table.add_column(column, justify="left" if column == "experiment" else "right", no_wrap=True)
    for need in found:
        table.add_row(escape(need.name), f"{need.cells:,}", f"{need.shared:,}", *_amounts(need))
    table.add_section()
    hours, processor = sum(need.hours for need in found), sum(need.processor_hours for need in found)
    table.add_row("all", f"{sum(need.cells for need in found):,}", "", _hours(hours), _hours(processor), "")
    console.print(table)
    for title, files in (
        ("data", dict.fromkeys(name for need in found for name in need.data)),
        ("weights", dict.fromkeys(name for need in found for name in need.weights)),
    ):
        for each in files:
            console.print(escape(f"{title} {each}: {_presence(each, root)}"), highlight=False, soft_wrap=True)
    console.print(
        f"Cells are counted once per seed; shared ones are those of an earlier experiment. GPU-hours assume "
        f"{TERAFLOPS:g}e12 operations a second (the only constant that is not measured; other GPUs in proportion), "
        "processor-hours are of one thread of the machine that measured the constants. Both are upper bounds where a "
        "method trains on a part of the data, and leave out choosing, clustering and reading. Memory is the most that "
        "one cell needs.",
        highlight=False,
    )
    what = name or "DOCUMENT"
    console.print(f"Run, stop and continue it by: holdfast reproduce {what} --scale {scale}", highlight=False)
    return 0


def _amounts(need: ExperimentNeed) -> tuple[str, str, str]:
    unknown = f" + {need.unknown} cells unknown" if need.unknown else ""
    memory = f"{need.memory / 1e9:.1f} GB" if need.memory else ""
    return _hours(need.hours) + unknown, _hours(need.processor_hours), memory


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.05 else "under 0.1" if hours else ""


def _presence(name: str, root: Path) -> str:
    """Whether what an estimate names is on this machine, and else how to get it."""
    kind, _, rest = name.rpartition(":")
    if kind in ("", "clients"):
        return _data_set(rest, root, federated=bool(kind))
    if kind == "imagenet":
        from holdfast.models.starting_weights import IMAGENET_URL, IMAGENET_WEIGHTS

        file = root / "weights" / IMAGENET_WEIGHTS[rest]
        return f"here, {file}" if file.exists() else f"missing; download {IMAGENET_URL}{file.name} to {file}"
    return "from the hub or its cache; not looked for"


def _data_set(name: str, root: Path, *, federated: bool) -> str:
    from holdfast.data import FEDERATIONS
    from holdfast.data.catalog import find, status

    cls = FEDERATIONS[name] if federated and name in FEDERATIONS else find(name)
    missing = [wanted for wanted, path in status(cls, root).items() if path is None]
    if not missing:
        return f"here, below {root}" if cls.files else "built in or from its package"
    return f"missing below {root}; {cls.by_hand or f'`holdfast data get {name}`'}"
