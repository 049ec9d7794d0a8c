"""What came out of an experiment, beside what the document prints: what claims read and pages show.

Results are put together from the values that the results folder keeps (`holdfast.papers.engine.store`) and from the
declaration as it stands; nothing here is stored. A cell may not have been measured yet, or with an older version of it;
a claim that asks for such a cell is not judged.

The spread is the standard deviation over seeds; which one is the experiment's ``spread``, and `deviation` is the one
place that computes it: ``sample`` (divided by n - 1) unless the document is known to use ``population`` (divided by n),
as PDE does. A sample of one has no spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from holdfast.errors import ConfigError, HoldfastError, nearest
from holdfast.papers.engine.experiment import Claim, Experiment, Printed, Scale, SpreadKind

VerdictWord = Literal["holds", "fails", "not judged"]


class NotMeasuredError(HoldfastError, LookupError):
    """A claim asked for a cell that failed, was never measured, or was by an older version: it is not judged."""


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
    """What is known of a cell.

    Attributes:
        name: the cell.
        metrics: numbers by metric; empty if no seed finished or the cell wasn't measured.
        seeds: under which seeds it was measured, one per value.
        seconds: time of one seed, mean over the seeds that finished.
        errors: what went wrong, by seed.
        version: the version that was measured; None if none was.
        wanted: the version of the cell as it is declared today.
        origin: commit, date, versions and machine of the measurement.
    """

    name: str
    metrics: Mapping[str, Metric]
    seeds: tuple[int, ...] = ()
    seconds: float = 0.0
    errors: Mapping[int, str] = field(default_factory=dict)
    version: int | None = 1
    wanted: int = 1
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reservation(self) -> str | None:
        """Why no claim may be judged by this cell, in a phrase; None if one may."""
        if self.version is None:
            return f"{self.name} is not measured"
        if self.version != self.wanted:
            return f"{self.name} was measured with version {self.version}, today's is {self.wanted}"
        if self.errors:
            return f"{self.name} didn't finish"
        return None


@dataclass(frozen=True)
class Judgement:
    """A claim and whether it holds.

    Attributes:
        name: the claim.
        verdict: whether it holds, fails or can't be judged.
        evidence: on which numbers, or why it wasn't judged.
    """

    name: str
    verdict: VerdictWord
    evidence: str


@dataclass(frozen=True)
class Results:
    """What came out of an experiment at a scale; claims read it, pages show it.

    Attributes:
        experiment: name of the experiment.
        scale: at which scale.
        seeds: under which seeds.
        cells: per cell, in the order of the table.
        claims: the verdicts; empty while claims are being judged.
    """

    experiment: str
    scale: Scale
    seeds: tuple[int, ...]
    cells: tuple[CellResult, ...]
    claims: tuple[Judgement, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The cells' names."""
        return tuple(cell.name for cell in self.cells)

    @property
    def complete(self) -> bool:
        """Whether every cell was measured as it stands and finished under every seed."""
        return all(cell.reservation is None for cell in self.cells)

    @property
    def failed(self) -> bool:
        """Whether a cell was tried and did not finish."""
        return any(cell.errors for cell in self.cells)

    @property
    def origins(self) -> tuple[Mapping[str, Any], ...]:
        """Where the cells come from, each origin once, the newest last."""
        known = [cell.origin for cell in self.cells if cell.origin]
        every = {(origin["date"], str(origin.get("commit"))): origin for origin in known}
        return tuple(origin for _, origin in sorted(every.items()))

    def count(self, verdict: VerdictWord) -> int:
        """How many claims have a verdict."""
        return sum(claim.verdict == verdict for claim in self.claims)

    def mean(self, cell: str, metric: str) -> float:
        """Our mean over the seeds."""
        return self._metric(cell, metric).ours.mean

    def spread(self, cell: str, metric: str) -> float | None:
        """Our standard deviation over the seeds; None for one seed."""
        return self._metric(cell, metric).ours.spread

    def values(self, cell: str, metric: str) -> tuple[float, ...]:
        """Our number under each seed, in the order of the cell's seeds, see `by_seed` for comparisons in pairs."""
        return self._metric(cell, metric).ours.values

    def by_seed(self, cell: str, metric: str) -> dict[int, float]:
        """Our number by seed, for comparisons in pairs."""
        values = self.values(cell, metric)
        return dict(zip(self.cell(cell).seeds, values, strict=True))

    @property
    def columns(self) -> list[str]:
        """What stands before the slash in the cells' names, in their order."""
        return list(dict.fromkeys(name.partition("/")[0] for name in self.names))

    def printed(self, cell: str, metric: str) -> Printed | None:
        """What the document prints."""
        return self._metric(cell, metric).printed

    def cell(self, name: str) -> CellResult:
        """A cell.

        Raises:
            ConfigError: if there is none of this name.
        """
        result = next((entry for entry in self.cells if entry.name == name), None)
        if result is None:
            raise ConfigError(
                f"{self.experiment} has no cell {name!r} at scale {self.scale}{nearest(name, self.names)}"
            )
        return result

    def _metric(self, cell: str, metric: str) -> Metric:
        result = self.cell(cell)
        if result.reservation is not None:
            raise NotMeasuredError(result.reservation)
        if metric not in result.metrics:
            raise ConfigError(f"cell {cell!r} has no metric {metric!r}{nearest(metric, result.metrics)}")
        return result.metrics[metric]


def deviation(values: Sequence[float], kind: SpreadKind = "sample") -> float | None:
    """The standard deviation of `values`, divided by n - 1 or by n; None for a sample of one.

    Example:
        >>> deviation([1.0, 3.0]), deviation([1.0, 3.0], "population")
        (1.4142135623730951, 1.0)
    """
    freedom = len(values) - (kind == "sample")
    if freedom < 1:
        return None
    mean = statistics.fmean(values)  # not statistics.stdev: its exact fractions take seconds for a folder of results
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / freedom)


def with_printed(experiment: Experiment, cells: Sequence[CellResult]) -> tuple[CellResult, ...]:
    """The cells with what the experiment derives from them, each number beside the printed one."""
    derived = cells if experiment.derive is None else experiment.derive(tuple(cells))
    return tuple(_beside_printed(experiment, derived))


def _beside_printed(experiment: Experiment, cells: Iterable[CellResult]) -> Iterator[CellResult]:
    for cell in cells:
        printed = experiment.printed.get(cell.name, {})
        metrics = {name: replace(metric, printed=printed.get(name)) for name, metric in cell.metrics.items()}
        yield replace(cell, metrics=metrics)


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
    extended = []
    for cell in cells:
        other = others.get(cell.name.partition("/")[0])
        added = compare(cell.metrics, other) if other and cell.metrics else {}
        metrics = {name: Metric(Measured.of(values)) for name, values in added.items()}
        extended.append(replace(cell, metrics={**cell.metrics, **metrics}))
    return tuple(extended)


def judge(experiment: Experiment, results: Results) -> Results:
    """The same results with a verdict on every claim.

    A claim that is not for this scale, that needs a cell which failed or wasn't measured as it stands, or whose numbers
    can't tell, is not judged: it neither holds nor fails, and its evidence says why.
    """
    return replace(results, claims=tuple(_judge(claim, results) for claim in experiment.claims))


def _judge(claim: Claim, results: Results) -> Judgement:
    if results.scale not in claim.scales:
        return Judgement(claim.name, "not judged", f"only at scale {' and '.join(claim.scales)}")
    try:
        verdict = claim.check(results)
    except NotMeasuredError as error:
        return Judgement(claim.name, "not judged", str(error))
    words: Mapping[bool | None, VerdictWord] = {True: "holds", False: "fails", None: "not judged"}
    return Judgement(claim.name, words[None if verdict.holds is None else bool(verdict.holds)], verdict.evidence)
