"""The page and the tables of a sweep: methods beside plain training, seed by seed, with what their checks say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from holdfast.errors import counted
from holdfast.files import write_atomically
from holdfast.report.html.markup import DASH, Html, duration, percent, tag
from holdfast.report.html.page import code, note, opening, section, write_page
from holdfast.report.html.tables import sortable, sortable_row


@dataclass(frozen=True)
class SweepRow:
    """A method under one way to select, with the trial that its validation scores chose.

    Attributes:
        selection: the validation score that chose epoch and trial.
        method: its name.
        trial: the chosen trial, from 0, which has the defaults.
        settings: what the trial drew, as options of `holdfast fit`.
        seeds: how many seeds finished.
        worst: worst-group accuracy on the test set, mean over seeds.
        accuracy: accuracy on the test set.
        gain: of `worst` over plain training, mean over pairs of one seed; None for plain training itself.
        low: lower end of the gain's 90 % interval; None for one seed.
        high: upper end.
        verdicts: how many of the seeds are ok, doubtful and failed.
        concerns: names of the checks that are not ok in some seed.
        cpu_seconds: of one training of the chosen trial.
        search_seconds: of all trials and seeds.
        error: why there are no numbers, or not of every seed.
    """

    selection: str
    method: str
    trial: int = 0
    settings: str = ""
    seeds: int = 0
    worst: float = 0.0
    accuracy: float = 0.0
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    verdicts: tuple[int, int, int] = (0, 0, 0)
    concerns: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    search_seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class SweepRecord:
    """What a sweep's page shows.

    Attributes:
        data: what was trained on.
        grouping: what the worst is taken over, ``group`` or ``class``.
        trials: per method.
        seeds: the seeds.
        selections: how models were chosen, a sentence each, by name of the criterion.
        rows: a row per selection and method.
        command: what continues or repeats it.
    """

    data: str
    grouping: str
    trials: int
    seeds: tuple[int, ...]
    selections: dict[str, str]
    rows: tuple[SweepRow, ...]
    command: str


def write_sweep(folder: Path, record: SweepRecord) -> Path:
    """Write ``report.html``, ``table.csv`` and ``table.json`` into the sweep's folder.

    Raises:
        CheckpointError: if one can't be written.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(SweepRow)], lineterminator="\n")
    table.writeheader()
    table.writerows({**asdict(row), "verdicts": "/".join(map(str, row.verdicts))} | _joined(row) for row in record.rows)
    write_atomically(folder / "table.csv", text.getvalue().encode())
    write_atomically(folder / "table.json", json.dumps(asdict(record), indent=1).encode())
    parts = [_section(record, selection, why) for selection, why in record.selections.items()]
    return write_page(
        folder / "report.html",
        f"{record.data}: sweep",
        opening(
            "holdfast sweep",
            counted(len(record.seeds), "seed"),
            record.data,
            [f"{counted(record.trials, 'trial')} of every method, the first with its defaults"],
            note(
                "Differences are to plain training under the same seed, with their mean's 90 % interval; one that "
                "excludes 0 is in bold. Epoch and trial are chosen on the validation set alone."
            ),
        ),
        *parts,
        section("Again", code(record.command), id_="repeat"),
    )


def sweep_table(record: SweepRecord, selection: str) -> Table:
    """The rows of one way to select, for the terminal."""
    table = Table(title=f"{record.data}, chosen by {selection}", title_justify="left", box=None, header_style="bold")
    for name in ("method", f"worst {record.grouping}", "over erm", "average", "ok / doubtful / failed", "CPU"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    table.add_column("settings", overflow="fold")
    for row in _rows(record, selection):
        table.add_row(*map(escape, (row.method, *_cells(row).values(), row.error or row.settings or "defaults")))
    return table


def _rows(record: SweepRecord, selection: str) -> Sequence[SweepRow]:
    return sorted((row for row in record.rows if row.selection == selection), key=lambda row: -row.worst)


def _section(record: SweepRecord, selection: str, why: str) -> Html:
    rows = [
        sortable_row(
            row.method,
            [
                *(
                    (_bold(text, row) if name == "gain" else text, getattr(row, name, None))
                    for name, text in _cells(row).items()
                ),
                (row.error or row.settings or "defaults", row.settings),
                (", ".join(row.concerns) or DASH, ", ".join(row.concerns)),
            ],
        )
        for row in _rows(record, selection)
    ]
    columns = ("Method", f"Worst {record.grouping}", "Over plain training", "Average", "ok / doubtful / failed",
               "CPU seconds", "Settings", "Checks that are not ok")  # fmt: skip
    table = sortable(f"Methods, chosen by {selection}", why, columns, rows, rising=None, class_="groups scores")
    return section(f"Chosen by {selection}", note(why), table, id_=selection.replace("_", "-"))


def _cells(row: SweepRow) -> dict[str, str]:
    if not row.seeds:
        return dict.fromkeys(("worst", "gain", "accuracy", "verdicts", "cpu_seconds"), DASH)
    return {
        "worst": percent(row.worst),
        "gain": _gain(row),
        "accuracy": percent(row.accuracy),
        "verdicts": " / ".join(map(str, row.verdicts)),
        "cpu_seconds": duration(row.cpu_seconds),
    }


def _gain(row: SweepRow) -> str:
    if row.gain is None:
        return DASH
    points = f"{100 * row.gain:+.1f}"
    return (
        points if row.low is None or row.high is None else f"{points} ({100 * row.low:+.1f} to {100 * row.high:+.1f})"
    )


def _bold(text: str, row: SweepRow) -> Html | str:
    clear = row.low is not None and row.high is not None and (row.low > 0 or row.high < 0)
    return tag("b", text) if clear else text


def _joined(row: SweepRow) -> dict[str, Any]:
    return {"concerns": "; ".join(row.concerns)}
