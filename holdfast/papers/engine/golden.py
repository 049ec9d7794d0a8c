"""Golden cells: a few small computations per experiment whose losses and weight norms are kept in the repository.

They are computed at every commit (``pytest -m golden``), so a change of the code that changes a number anywhere on the
way of an experiment is noticed on the day it is made; one that changes nothing costs nothing. Values lie in
``results/golden/PAPER.json`` with the version of their cell. Whoever changes numbers on purpose raises the version, of
the golden cell and of the cells it stands for, and records the new values by ``holdfast reproduce PAPER --golden``.

The tolerance lets another processor's rounding pass and nothing else: over at most about twenty steps sums in another
order differ by less than `RELATIVE`, while another seed, weight, formula or order of draws differs by more, see
``benchmarks/golden.py``, which measures both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.papers.engine.experiment import Cell, Experiment
from holdfast.papers.engine.jsonfile import expect_keys, number, read_json, text, write_json
from holdfast.papers.engine.kinds import function_of, key_of
from holdfast.papers.engine.witness import watching

#: Largest relative difference between two processors that still counts as rounding.
RELATIVE = 2e-5
#: The same as a share of the largest value of the cell, for values near zero.
ABSOLUTE = 1e-7

SEED = 0


@dataclass(frozen=True)
class Golden:
    """What is kept of a golden cell.

    Attributes:
        version: the version of the cell that the values belong to.
        key: kind and settings of the cell; another key is another cell.
        values: losses and norms, by name.
    """

    version: int
    key: str
    values: Mapping[str, float]


def golden_cells(experiments: Sequence[Experiment]) -> dict[str, Cell]:
    """The golden cells of a document by name; experiments may share one.

    Raises:
        ConfigError: if two different cells have one name.
    """
    cells: dict[str, Cell] = {}
    for experiment in experiments:
        for cell in experiment.golden:
            if cells.setdefault(cell.name, cell) != cell:
                raise ConfigError(f"{experiment.name} has another golden cell called {cell.name!r}; rename one")
    return cells


def compute(cell: Cell) -> dict[str, float]:
    """Run a golden cell in this process and return what the witness saw.

    Raises:
        ConfigError: if its function told the witness nothing.
    """
    with watching() as seen:
        function_of(cell.kind)(settings=dict(cell.settings), seed=SEED)
    if not seen:
        raise ConfigError(f"the kind {cell.kind!r} tells the witness nothing; let it tell its losses and weights")
    return seen


def differences(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Where values differ by more than rounding, in phrases."""
    changes = [f"{name} is missing now" for name in before if name not in now]
    changes += [f"{name} is new" for name in now if name not in before]
    floor = ABSOLUTE * max((abs(value) for value in before.values()), default=0.0)
    for name in before:
        # written as "not within", because a comparison with NaN is always False and NaN must be noticed
        if name in now and not abs(now[name] - before[name]) <= max(RELATIVE * abs(before[name]), floor):
            changes.append(f"{name} was {before[name]!r} and is {now[name]!r}")
    return changes


def golden_file(folder: Path, paper: str) -> Path:
    """Where the golden values of a document lie below the results folder."""
    return folder / "golden" / f"{paper}.json"


def read_golden(folder: Path, paper: str) -> dict[str, Golden]:
    """The kept values of a document by cell; empty if there are none.

    Raises:
        DataError: if the file isn't one of golden values.
    """
    file = golden_file(folder, paper)
    return read_json(file, "file of golden values", from_json) if file.exists() else {}


def from_json(stored: Mapping[str, Any]) -> dict[str, Golden]:
    """The content of a file of golden values."""
    golden = {}
    for name, entry in stored.items():
        expect_keys(entry, "version key values")
        values = {key: number(value) for key, value in entry["values"].items()}
        golden[name] = Golden(int(entry["version"]), text(entry["key"]), values)
    return golden


def record(folder: Path, paper: str, cells: Mapping[str, Cell], now: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Keep new values; those of a version that is kept already must agree with it.

    Args:
        folder: the results folder.
        paper: the document.
        cells: all golden cells of it; what is kept of others is dropped.
        now: what was computed, by cell.

    Returns:
        Phrases about cells whose values changed though their version did not; if there are any, nothing is written.
    """
    stored = read_golden(folder, paper)
    refused, fresh = [], {}
    for name, cell in cells.items():
        before = stored.get(name)
        if name not in now:
            if before is not None:
                fresh[name] = before
        elif before is not None and before.version == cell.version and before.key == key_of(cell):
            refused += [f"{name}: {each}; raise its version" for each in differences(before.values, now[name])]
            fresh[name] = before
        elif before is not None and before.version > cell.version:
            refused.append(f"{name} has version {cell.version}, older than {before.version}")
        else:
            fresh[name] = Golden(cell.version, key_of(cell), now[name])
    if not refused:
        content = {name: asdict(each) for name, each in fresh.items()}
        write_json(golden_file(folder, paper), content)
    return refused
