"""The results folder: every measured value once, with where it comes from, and the verdicts on the claims.

``results/PAPER/EXPERIMENT.SCALE.json`` holds ``experiment, scale, seeds, measured, cells, claims``. ``measured`` lists
where values come from: commit, date, versions of the main packages, machine. Each cell has ``name``, ``key`` (its kind
and settings, see `holdfast.papers.engine.kinds`), ``version``, ``from`` (its place in ``measured``), ``seconds`` of one
seed, ``seeds``, ``values`` (per metric one number per seed), ``errors`` by seed where a seed failed, and ``checks``
where it was computed again later. Claims have ``name``, ``verdict`` and ``evidence``.

Several tables of a document may show one cell. It belongs to the first experiment of the document that declares it, and
only that one's file has its values; the others find them there. What is printed in a document, means and spreads are in
no file: the first is declared, the others are computed.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from holdfast.errors import MissingDependencyError
from holdfast.files import write_atomically
from holdfast.papers.engine.execute import CellOutcome
from holdfast.papers.engine.experiment import SCALES, Cell, Experiment, Scale
from holdfast.papers.engine.jsonfile import expect_keys, number, read_json, text, write_json
from holdfast.papers.engine.kinds import key_of, load
from holdfast.papers.engine.results import (
    CellResult,
    Judgement,
    Measured,
    Metric,
    Results,
    VerdictWord,
    judge,
    with_printed,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Check:
    """A later computation of one seed of a cell.

    Attributes:
        date: when, ISO 8601 in UTC.
        commit: of the code, where it is known.
        seed: which seed.
        farthest: the largest relative difference of any metric but times; 0 if all are the same to the last bit.
        metric: of which metric it is.
        processor: on which kind of processor; on another one than the stored value's, long training may differ.
    """

    date: str
    commit: str | None
    seed: int
    farthest: float
    metric: str
    processor: str = ""


@dataclass(frozen=True)
class StoredCell:
    """What is kept of a cell, see the module's text."""

    name: str
    key: str
    version: int
    origin: Mapping[str, Any]
    seconds: float
    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]
    errors: Mapping[int, str] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def looked_at(self) -> str:
        """When it was measured or checked last."""
        return self.checks[-1].date if self.checks else str(self.origin["date"])


@dataclass(frozen=True)
class ResultsFile:
    """A results file."""

    experiment: str
    scale: Scale
    seeds: tuple[int, ...] = ()
    cells: tuple[StoredCell, ...] = ()
    claims: tuple[Judgement, ...] = ()


class Store:
    """The results of a document at a scale.

    Args:
        folder: the results folder.
        experiments: all experiments of the document, in their order.
        scale: the scale.
    """

    def __init__(self, folder: Path, experiments: Sequence[Experiment], scale: Scale) -> None:
        self.folder = folder
        self.scale = scale
        self.experiments = {experiment.name: experiment for experiment in experiments if scale in experiment.scales}
        self.records: dict[str, ResultsFile] = {}
        for name in self.experiments:
            file = results_file(folder, name, scale)
            if file.exists():
                self.records[name] = read_record(file)
        self._on_disk = dict(self.records)

    @cached_property
    def owners(self) -> dict[str, str]:
        """By key of a cell the experiment whose file keeps it: the first that declares it."""
        owner: dict[str, str] = {}
        for name, experiment in self.experiments.items():
            for cell in experiment.cells_at(self.scale):
                owner.setdefault(key_of(cell), name)
        return owner

    def entry(self, cell: Cell) -> StoredCell | None:
        """What is kept of a cell, in whichever file; None if nothing."""
        key = key_of(cell)
        record = self.records.get(self.owners.get(key, ""))
        return None if record is None else next((entry for entry in record.cells if entry.key == key), None)

    def results(self, experiment: Experiment) -> Results | None:
        """The results of an experiment with its stored verdicts; None if none of its cells was ever measured."""
        cells = experiment.cells_at(self.scale)
        entries = {cell.name: self.entry(cell) for cell in cells}
        if not any(entries.values()):
            return None
        record = self.records.get(experiment.name)
        seeds = record.seeds if record is not None and record.seeds else experiment.default_seeds(self.scale)
        shown = [_cell_result(experiment, cell, entries[cell.name], cell.seeds_of(seeds)) for cell in cells]
        claims = () if record is None else record.claims
        return Results(experiment.name, self.scale, tuple(seeds), with_printed(experiment, shown), claims)

    def put(self, experiment: Experiment, seeds: Sequence[int], outcomes: Iterable[CellOutcome]) -> Results:
        """Keep outcomes, each with the experiment that owns its cell, and judge all claims of the document anew.

        What failed never takes the place of what was measured with the same version. Files are written by `write`.

        Returns:
            The experiment's results, judged.
        """
        by_cell: dict[str, list[CellOutcome]] = {}
        for outcome in outcomes:
            by_cell.setdefault(outcome.cell, []).append(outcome)
        for cell in experiment.cells_at(self.scale):
            if cell.name in by_cell:
                owner = self.owners[key_of(cell)]
                record = self.records.get(owner) or ResultsFile(owner, self.scale, tuple(seeds))
                self.records[owner] = replace(record, cells=self._merged(record, cell, by_cell[cell.name]))
        record = self.records.get(experiment.name) or ResultsFile(experiment.name, self.scale)
        self.records[experiment.name] = replace(record, seeds=tuple(seeds))
        self.judge()
        results = self.results(experiment)
        assert results is not None
        return results

    def _merged(self, record: ResultsFile, cell: Cell, outcomes: Sequence[CellOutcome]) -> tuple[StoredCell, ...]:
        """The record's entries with the new outcomes of a cell, in the order of the declaration; others are dropped."""
        entries = {entry.key: entry for entry in record.cells}
        key = key_of(cell)
        entries[key] = _merge(entries.get(key), cell, outcomes)
        declared = [key_of(each) for each in self.experiments[record.experiment].cells_at(self.scale)]
        return tuple(entries[each] for each in dict.fromkeys(declared) if each in entries)

    def replace_entry(self, entry: StoredCell) -> None:
        """Put an entry in the place of the one with its key."""
        record = self.records[self.owners[entry.key]]
        cells = tuple(entry if each.key == entry.key else each for each in record.cells)
        self.records[record.experiment] = replace(record, cells=cells)

    def judge(self) -> None:
        """Judge every claim of every experiment of which something is measured, from what is stored."""
        for experiment in self.experiments.values():
            results = self.results(experiment)
            if results is not None:
                record = self.records.get(experiment.name) or ResultsFile(experiment.name, self.scale, results.seeds)
                claims = judge(experiment, results).claims
                self.records[experiment.name] = replace(record, claims=claims)

    def write(self) -> list[Path]:
        """Write the files that changed, each as a whole or not at all, and the figures of complete results.

        Raises:
            CheckpointError: if one can't be written.
            ConfigError: if its folder can't be made.
        """
        written = []
        for name, record in self.records.items():
            file = results_file(self.folder, name, self.scale)
            if self._on_disk.get(name) != record:
                write_json(file, to_json(record))
                self._on_disk[name] = record
                written.append(file)
            if (drawn := self._drawn(self.experiments[name])) is not None:
                picture = figure_file(self.folder, name, self.scale)
                if not picture.exists() or picture.read_text() != drawn:
                    write_atomically(picture, drawn.encode())
                    written.append(picture)
        return written

    def _drawn(self, experiment: Experiment) -> str | None:
        """The figure; what was measured is worth keeping also where nothing can draw it."""
        results = self.results(experiment)
        try:
            return None if results is None else draw(experiment, results)
        except MissingDependencyError as error:
            _log.warning("%s is not drawn: %s", experiment.name, error)
            return None


def draw(experiment: Experiment, results: Results) -> str | None:
    """The figure of complete results as SVG; None if there is nothing to draw."""
    if experiment.figure is None or not results.complete:
        return None
    drawn: str = load(experiment.figure)(results)
    return drawn


def _merge(before: StoredCell | None, cell: Cell, outcomes: Sequence[CellOutcome]) -> StoredCell:
    """An entry with new outcomes in the place of the old ones of their seeds; an older version is forgotten."""
    current = before if before is not None and before.version == cell.version else None
    by_seed: dict[int, Mapping[str, float]] = {}
    errors: dict[int, str] = {}
    if current is not None:
        by_seed = {
            seed: {name: values[i] for name, values in current.values.items()} for i, seed in enumerate(current.seeds)
        }
        errors = dict(current.errors)
    seconds = [] if current is None else [current.seconds] * len(current.seeds)
    origin: Mapping[str, Any] = {} if current is None else current.origin
    for outcome in outcomes:
        if outcome.metrics is not None:
            by_seed[outcome.seed] = outcome.metrics
            errors.pop(outcome.seed, None)
            seconds.append(outcome.seconds)
            # seeds of one cell may come from several runs; the entry names the latest of them
            origin = max(origin, outcome.origin, key=lambda each: each.get("date", ""))
        elif outcome.seed not in by_seed:
            errors[outcome.seed] = outcome.error or "it failed"
            origin = origin or outcome.origin
    # Columns of the file have one value per seed: a seed with other metrics than the first can't be stored beside it.
    metrics = next(iter(by_seed.values()), {}).keys()
    for seed in [seed for seed, numbers in by_seed.items() if numbers.keys() != metrics]:
        odd = ", ".join(sorted(by_seed.pop(seed).keys() ^ metrics))
        errors[seed] = f"only some seeds gave {odd}; a cell has the same metrics under every seed"
    seeds = tuple(sorted(by_seed))
    return StoredCell(
        name=cell.name,
        key=key_of(cell),
        version=cell.version,
        origin=origin,
        seconds=round(statistics.fmean(seconds), 3) if seconds else 0.0,
        seeds=seeds,
        values={metric: tuple(by_seed[seed][metric] for seed in seeds) for metric in metrics},
        errors=errors,
        checks=() if current is None or current.origin != origin else current.checks,
    )


def _cell_result(experiment: Experiment, cell: Cell, entry: StoredCell | None, seeds: Sequence[int]) -> CellResult:
    """A cell as the experiment sees it: under its seeds, as far as they were measured."""
    if entry is None:
        return CellResult(cell.name, {}, version=None, wanted=cell.version)
    places = [entry.seeds.index(seed) for seed in seeds if seed in entry.seeds]
    metrics = {}
    if places:
        for metric, values in entry.values.items():
            metrics[metric] = Metric(Measured.of([values[place] for place in places], experiment.spread))
    return CellResult(
        name=cell.name,
        metrics=metrics,
        seeds=tuple(entry.seeds[place] for place in places),
        seconds=entry.seconds,
        errors={seed: error for seed, error in entry.errors.items() if seed in seeds},
        version=entry.version if metrics or entry.errors else None,
        wanted=cell.version,
        origin=entry.origin,
    )


# --------------------------------------------------------------------------------------------------------- the file


def results_file(folder: Path, experiment: str, scale: Scale) -> Path:
    """Where the results of an experiment lie below the results folder."""
    return folder / f"{experiment}.{scale}.json"


def figure_file(folder: Path, experiment: str, scale: Scale) -> Path:
    """Where the drawing of an experiment lies, beside its results file."""
    return folder / f"{experiment}.{scale}.svg"


def to_json(record: ResultsFile) -> dict[str, Any]:
    """A results file as plain values, in the file's order."""
    origins: list[Mapping[str, Any]] = []
    for entry in record.cells:
        if entry.origin not in origins:
            origins.append(entry.origin)
    return {
        "experiment": record.experiment,
        "scale": record.scale,
        "seeds": list(record.seeds),
        "measured": [dict(origin) for origin in origins],
        "claims": [asdict(claim) for claim in record.claims],
        "cells": [_entry_json(entry, origins.index(entry.origin)) for entry in record.cells],
    }


def _entry_json(entry: StoredCell, origin: int) -> dict[str, Any]:
    stored: dict[str, Any] = {
        "name": entry.name,
        "key": entry.key,
        "version": entry.version,
        "from": origin,
        "seconds": entry.seconds,
        "seeds": list(entry.seeds),
        "values": {name: list(values) for name, values in entry.values.items()},
    }
    if entry.errors:
        stored["errors"] = {str(seed): message for seed, message in entry.errors.items()}
    if entry.checks:
        stored["checks"] = [asdict(check) for check in entry.checks]
    return stored


def read_record(file: Path) -> ResultsFile:
    """Read a results file.

    Raises:
        DataError: if the file isn't there or isn't a results file.
    """
    return read_json(file, "results file", from_json)


def from_json(stored: Mapping[str, Any]) -> ResultsFile:
    """What `to_json` gave; anything else is an error that `read_json` turns into a sentence."""
    expect_keys(stored, "experiment scale seeds measured claims cells")
    if stored["scale"] not in SCALES:
        raise ValueError(f"there is no scale {stored['scale']!r}")
    origins = [dict(origin) for origin in stored["measured"]]
    for origin in origins:
        text(origin["date"])
    return ResultsFile(
        experiment=text(stored["experiment"]),
        scale=stored["scale"],
        seeds=tuple(int(seed) for seed in stored["seeds"]),
        cells=tuple(_entry(cell, origins) for cell in stored["cells"]),
        claims=tuple(_claim(claim) for claim in stored["claims"]),
    )


def _entry(stored: Mapping[str, Any], origins: Sequence[Mapping[str, Any]]) -> StoredCell:
    expect_keys(stored, "name key version from seconds seeds values", optional="errors checks")
    seeds = tuple(int(seed) for seed in stored["seeds"])
    values = {name: tuple(number(value) for value in column) for name, column in stored["values"].items()}
    for name, column in values.items():
        if len(column) != len(seeds):
            raise ValueError(f"{stored['name']} has {len(column)} values of {name} for {len(seeds)} seeds")
    return StoredCell(
        name=text(stored["name"]),
        key=text(stored["key"]),
        version=int(stored["version"]),
        origin=origins[stored["from"]],
        seconds=number(stored["seconds"]),
        seeds=seeds,
        values=values,
        errors={int(seed): text(message) for seed, message in stored.get("errors", {}).items()},
        checks=tuple(_check(check) for check in stored.get("checks", [])),
    )


def _check(stored: Mapping[str, Any]) -> Check:
    expect_keys(stored, "date commit seed farthest metric processor")
    return Check(
        date=text(stored["date"]),
        commit=None if stored["commit"] is None else text(stored["commit"]),
        seed=int(stored["seed"]),
        farthest=number(stored["farthest"]),
        metric=text(stored["metric"]),
        processor=text(stored["processor"]),
    )


def _claim(stored: Mapping[str, Any]) -> Judgement:
    expect_keys(stored, "name verdict evidence")
    if stored["verdict"] not in get_args(VerdictWord):
        raise ValueError(f"there is no verdict {stored['verdict']!r}")
    return Judgement(text(stored["name"]), stored["verdict"], text(stored["evidence"]))
