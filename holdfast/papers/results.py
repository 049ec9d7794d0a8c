"""What came out of an experiment, beside what the document prints, as one small JSON file per experiment and scale.

``results/PAPER/EXPERIMENT.SCALE.json`` holds ``experiment, scale, commit, date, seeds, cells, claims, fingerprint,
environment``. Each cell has ``name``, ``metrics`` (per metric ``ours`` with mean, spread and the value per seed, and
``printed`` with mean and spread or null) and ``seconds`` (of one seed, mean), ``errors`` by seed where a seed failed,
and ``seeds`` where it was computed under fewer than the others. Each claim has ``name``, ``holds`` (null where it
wasn't checked) and ``evidence``. ``confirmed`` lists later looks at some of the cells, where there were any.

The spread is the standard deviation over seeds; which one is the experiment's ``spread``, and `deviation` is the one
place that computes it: ``sample`` (divided by n - 1) unless the document is known to use ``population`` (divided by n),
as PDE does. A sample of one has no spread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, HoldfastError, nearest
from holdfast.papers.execute import Outcome
from holdfast.papers.experiment import SCALES, Cell, Experiment, Printed, Scale, SpreadKind
from holdfast.papers.fingerprint import Fingerprint, fingerprint
from holdfast.papers.jsonfile import expect_keys, number, number_or_none, read_json, text, write_json
from holdfast.training.state import write_atomically


class UnfinishedError(HoldfastError, LookupError):
    """A claim asked for a cell that failed; the claim is then reported as not checked."""


@dataclass(frozen=True)
class Measured:
    """Our number.

    Attributes:
        mean: over the seeds.
        spread: over the seeds, see `deviation`.
        values: one per seed that finished, in the order of the seeds; or one that was derived from all of them.
    """

    mean: float
    spread: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float], kind: SpreadKind = "sample") -> Measured:
        """Mean and spread of one value per seed."""
        return cls(statistics.fmean(values), deviation(values, kind), tuple(values))


@dataclass(frozen=True)
class Metric:
    """Our number beside theirs.

    Attributes:
        ours: what we measured.
        printed: what the document prints for the same thing, where it does.
    """

    ours: Measured
    printed: Printed | None = None


@dataclass(frozen=True)
class CellResult:
    """What came out of a cell.

    Attributes:
        name: the cell.
        metrics: numbers by metric; empty if no seed finished.
        seconds: time of one seed, mean over the seeds that finished.
        errors: what went wrong, by seed.
        seeds: under which seeds it was computed, where not under all of the run.
    """

    name: str
    metrics: Mapping[str, Metric]
    seconds: float
    errors: Mapping[int, str]
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Judgement:
    """A claim and whether it holds.

    Attributes:
        name: the claim.
        holds: whether it holds; None if it wasn't checked.
        evidence: on which numbers, or why it wasn't checked.
    """

    name: str
    holds: bool | None
    evidence: str


@dataclass(frozen=True)
class Confirmation:
    """Cells that were computed again after a change of the code, and gave the same numbers.

    Attributes:
        commit: of the changed code.
        date: when, ISO 8601 in UTC.
        seed: under which seed.
        cells: which.
    """

    commit: str | None
    date: str
    seed: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """What came out of an experiment at a scale; claims read it, files hold it, pages show it.

    Attributes:
        experiment: name of the experiment.
        scale: at which scale.
        commit: the commit of holdfast's code, where it is known.
        date: when it was run, ISO 8601 in UTC.
        seeds: under which seeds.
        cells: per cell, in the order of the table.
        claims: the verdicts; empty while claims are being judged.
        fingerprint: what the results depend on.
        environment: versions and machine, and whether the code had uncommitted changes.
        confirmed: changes of the code since, see `holdfast.papers.confirm`; the fingerprint is that of the last.
    """

    experiment: str
    scale: Scale
    commit: str | None
    date: str
    seeds: tuple[int, ...]
    cells: tuple[CellResult, ...]
    claims: tuple[Judgement, ...]
    fingerprint: Fingerprint
    environment: Mapping[str, Any]
    confirmed: tuple[Confirmation, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The cells' names."""
        return tuple(cell.name for cell in self.cells)

    @property
    def complete(self) -> bool:
        """Whether every cell finished under every seed."""
        return not any(cell.errors for cell in self.cells)

    @property
    def held(self) -> int:
        """How many claims hold."""
        return sum(claim.holds is True for claim in self.claims)

    def mean(self, cell: str, metric: str) -> float:
        """Our mean over the seeds."""
        return self._measured(cell, metric).mean

    def spread(self, cell: str, metric: str) -> float | None:
        """Our standard deviation over the seeds; None for one seed."""
        return self._measured(cell, metric).spread

    def values(self, cell: str, metric: str) -> tuple[float, ...]:
        """Our number under each seed, in the order of `seeds`, for comparisons in pairs; a cell may have fewer."""
        return self._measured(cell, metric).values

    def printed(self, cell: str, metric: str) -> Printed | None:
        """What the document prints."""
        return self._metric(cell, metric).printed

    def _measured(self, cell: str, metric: str) -> Measured:
        return self._metric(cell, metric).ours

    def _metric(self, cell: str, metric: str) -> Metric:
        found = next((entry for entry in self.cells if entry.name == cell), None)
        if found is None:
            raise ConfigError(
                f"{self.experiment} has no cell {cell!r} at scale {self.scale}{nearest(cell, self.names)}"
            )
        if found.errors:
            raise UnfinishedError(f"{cell} didn't finish")
        if metric not in found.metrics:
            raise ConfigError(f"cell {cell!r} has no metric {metric!r}{nearest(metric, found.metrics)}")
        return found.metrics[metric]


def deviation(values: Sequence[float], kind: SpreadKind = "sample") -> float | None:
    """The standard deviation of `values`, divided by n - 1 or by n; None for a sample of one.

    Example:
        >>> deviation([1.0, 3.0]), deviation([1.0, 3.0], "population")
        (1.4142135623730951, 1.0)
    """
    if kind == "population":
        return statistics.pstdev(values)
    return statistics.stdev(values) if len(values) > 1 else None


def collect(experiment: Experiment, cells: Sequence[Cell], outcomes: Sequence[Outcome]) -> tuple[CellResult, ...]:
    """The outcomes by cell, beside the printed numbers.

    Args:
        experiment: says what is printed and which spread is wanted.
        cells: in the order of the table.
        outcomes: of every cell and seed.

    Returns:
        A result per cell. Seeds whose metrics differ in name make an error of the odd ones.
    """
    every = len({outcome.seed for outcome in outcomes})
    found = tuple(
        _cell_result(experiment, cell.name, [outcome for outcome in outcomes if outcome.cell == cell.name], every)
        for cell in cells
    )
    return found if experiment.derive is None else tuple(_beside_printed(experiment, experiment.derive(found)))


def _beside_printed(experiment: Experiment, cells: Iterable[CellResult]) -> Iterator[CellResult]:
    for cell in cells:
        printed = experiment.printed.get(cell.name, {})
        metrics = {name: replace(metric, printed=printed.get(name)) for name, metric in cell.metrics.items()}
        yield replace(cell, metrics=metrics)


def _cell_result(experiment: Experiment, name: str, outcomes: Sequence[Outcome], every: int) -> CellResult:
    errors: dict[int, str] = {}
    finished: list[tuple[Mapping[str, float], float]] = []
    for outcome in outcomes:
        if outcome.metrics is None:
            errors[outcome.seed] = outcome.error or "it failed"
        elif finished and outcome.metrics.keys() != finished[0][0].keys():
            odd = ", ".join(sorted(outcome.metrics.keys() ^ finished[0][0].keys()))
            errors[outcome.seed] = f"only some seeds gave {odd}; a cell has the same metrics under every seed"
        else:
            finished.append((outcome.metrics, outcome.seconds))
    printed = experiment.printed.get(name, {})
    metrics = {}
    for metric in finished[0][0] if finished else ():
        values = tuple(numbers[metric] for numbers, _ in finished)
        metrics[metric] = Metric(Measured.of(values, experiment.spread), printed.get(metric))
    seconds = statistics.fmean(seconds for _, seconds in finished) if finished else 0.0
    seeds = tuple(outcome.seed for outcome in outcomes)
    return CellResult(name, metrics, round(seconds, 3), errors, seeds if len(seeds) < every else None)


def beside(
    cells: Sequence[CellResult],
    row: str,
    compare: Callable[[Mapping[str, Metric], Mapping[str, Metric]], Mapping[str, Sequence[float]]],
) -> tuple[CellResult, ...]:
    """Adds metrics that compare each cell with the cell of the same column in a given row, for `Experiment.derive`.

    Args:
        cells: all cells.
        row: what comes after the first slash of the other cell's name.
        compare: from the metrics of a cell and of the other to values by new metric.

    Returns:
        The cells; those that failed, or whose other cell did, as they are.
    """
    others = {cell.name.partition("/")[0]: cell.metrics for cell in cells if cell.name.partition("/")[2] == row}
    found = []
    for cell in cells:
        other = others.get(cell.name.partition("/")[0])
        added = compare(cell.metrics, other) if other and cell.metrics else {}
        metrics = {name: Metric(Measured.of(values)) for name, values in added.items()}
        found.append(replace(cell, metrics={**cell.metrics, **metrics}))
    return tuple(found)


def judge(experiment: Experiment, results: Results) -> Results:
    """The same results with a verdict on every claim.

    A claim that is not for this scale, or that needs a cell that failed, is not checked: it neither holds nor fails.
    """
    verdicts = []
    for claim in experiment.claims:
        if results.scale not in claim.scales:
            where = " and ".join(claim.scales)
            verdicts.append(Judgement(claim.name, None, f"not checked at this scale, only at {where}"))
            continue
        try:
            verdict = claim.check(results)
        except UnfinishedError as error:
            verdicts.append(Judgement(claim.name, None, f"not checked: {error}"))
        else:
            verdicts.append(Judgement(claim.name, bool(verdict.holds), verdict.evidence))
    return replace(results, claims=tuple(verdicts))


def stale(experiment: Experiment, results: Results) -> str | None:
    """Why the results no longer belong to the experiment as it stands, in a phrase, or None if they do."""
    return results.fingerprint.stale_since(fingerprint(experiment, results.scale))


# --------------------------------------------------------------------------------------------------------- the file


def results_file(folder: Path, experiment: str, scale: Scale) -> Path:
    """Where the results of an experiment lie below the results folder."""
    return folder / f"{experiment}.{scale}.json"


def write_results(results: Results, folder: Path) -> Path:
    """Write the results file as a whole or not at all.

    Args:
        results: what to write.
        folder: the results folder.

    Returns:
        The file.

    Raises:
        CheckpointError: if it can't be written.
        ConfigError: if its folder can't be made.
    """
    file = results_file(folder, results.experiment, results.scale)
    write_json(file, to_json(results))
    return file


def figure_file(folder: Path, experiment: str, scale: Scale) -> Path:
    """Where the drawing of an experiment lies, beside its results file."""
    return results_file(folder, experiment, scale).with_suffix(".svg")


def write_figure(experiment: Experiment, results: Results, folder: Path) -> Path | None:
    """Draw complete results of an experiment that has a figure, beside the results file.

    Returns:
        The file; None if there is nothing to draw.

    Raises:
        CheckpointError: if it can't be written.
    """
    if experiment.figure is None or not results.complete:
        return None
    file = figure_file(folder, results.experiment, results.scale)
    write_atomically(file, experiment.figure(results).encode())
    return file


def to_json(results: Results) -> dict[str, Any]:
    """The results as plain values, in the file's order."""
    confirmed = {"confirmed": [asdict(one) for one in results.confirmed]} if results.confirmed else {}
    return {
        "experiment": results.experiment,
        "scale": results.scale,
        "commit": results.commit,
        "date": results.date,
        "seeds": list(results.seeds),
        "cells": [_cell_json(cell) for cell in results.cells],
        "claims": [asdict(claim) for claim in results.claims],
        "fingerprint": {
            "declaration": results.fingerprint.declaration,
            "sources": dict(results.fingerprint.sources),
        },
        "environment": dict(results.environment),
        **confirmed,
    }


def _cell_json(cell: CellResult) -> dict[str, Any]:
    stored = {
        "name": cell.name,
        "metrics": {name: _metric_json(metric) for name, metric in cell.metrics.items()},
        "seconds": cell.seconds,
    }
    if cell.seeds is not None:
        stored["seeds"] = list(cell.seeds)
    if cell.errors:
        stored["errors"] = {str(seed): message for seed, message in cell.errors.items()}
    return stored


def _metric_json(metric: Metric) -> dict[str, Any]:
    ours = {"mean": metric.ours.mean, "spread": metric.ours.spread, "values": list(metric.ours.values)}
    return {"ours": ours, "printed": None if metric.printed is None else asdict(metric.printed)}


def read_results(file: Path) -> Results:
    """Read a results file.

    Args:
        file: written by `write_results`.

    Returns:
        The results.

    Raises:
        DataError: if the file isn't there or isn't a results file.
    """
    return read_json(file, "results file", from_json)


def from_json(stored: Mapping[str, Any]) -> Results:
    """What `to_json` gave; anything else is an error that `read_json` turns into a sentence."""
    keys = "experiment scale commit date seeds cells claims fingerprint environment"
    expect_keys(stored, keys, optional="confirmed")
    if stored["scale"] not in SCALES:
        raise ValueError(f"there is no scale {stored['scale']!r}")
    digests = expect_keys(stored["fingerprint"], "declaration sources")
    seeds = tuple(int(seed) for seed in stored["seeds"])
    return Results(
        experiment=text(stored["experiment"]),
        scale=stored["scale"],
        commit=None if stored["commit"] is None else text(stored["commit"]),
        date=text(stored["date"]),
        seeds=seeds,
        cells=tuple(_cell(cell, len(seeds)) for cell in stored["cells"]),
        claims=tuple(_claim(claim) for claim in stored["claims"]),
        fingerprint=Fingerprint(text(digests["declaration"]), dict(digests["sources"])),
        environment=dict(stored["environment"]),
        confirmed=tuple(_confirmation(one) for one in stored.get("confirmed", [])),
    )


def _confirmation(stored: Mapping[str, Any]) -> Confirmation:
    expect_keys(stored, "commit date seed cells")
    commit = None if stored["commit"] is None else text(stored["commit"])
    return Confirmation(commit, text(stored["date"]), int(stored["seed"]), tuple(text(one) for one in stored["cells"]))


def _cell(stored: Mapping[str, Any], n_seeds: int) -> CellResult:
    expect_keys(stored, "name metrics seconds", optional="errors seeds")
    errors = {int(seed): text(message) for seed, message in stored.get("errors", {}).items()}
    seeds = tuple(int(seed) for seed in stored["seeds"]) if "seeds" in stored else None
    n_seeds = n_seeds if seeds is None else len(seeds)
    metrics = {}
    for name, metric in stored["metrics"].items():
        expect_keys(metric, "ours printed")
        ours = expect_keys(metric["ours"], "mean spread values")
        values = tuple(number(value) for value in ours["values"])
        derived = len(values) == 1 and ours["spread"] is None
        if not derived and len(values) != n_seeds - len(errors):
            raise ValueError(f"{stored['name']} has {len(values)} values of {name} for {n_seeds} seeds")
        measured = Measured(number(ours["mean"]), number_or_none(ours["spread"]), values)
        metrics[name] = Metric(measured, None if metric["printed"] is None else _printed(metric["printed"]))
    return CellResult(text(stored["name"]), metrics, number(stored["seconds"]), errors, seeds)


def _printed(stored: Mapping[str, Any]) -> Printed:
    expect_keys(stored, "mean spread")
    return Printed(number(stored["mean"]), number_or_none(stored["spread"]))


def _claim(stored: Mapping[str, Any]) -> Judgement:
    expect_keys(stored, "name holds evidence")
    if not (stored["holds"] is None or isinstance(stored["holds"], bool)):
        raise ValueError(f"holds is {stored['holds']!r}; it is true, false or null")
    return Judgement(text(stored["name"]), stored["holds"], text(stored["evidence"]))
