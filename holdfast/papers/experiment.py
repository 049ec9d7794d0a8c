"""What an experiment is: cells to compute, the numbers a document printed for them, and its claims as predicates.

A declaration holds no results and does no work. A cell names a function by its import path and gives it plain settings,
so it can run in any process and be found again in the cache; what the document prints is kept beside it, never mixed
with what we measured; and a claim is a function of our results that says whether it holds and on what evidence. A
figure is declared like a table: what its curves show are metrics, what its caption says are claims.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from holdfast.errors import ConfigError, nearest

if TYPE_CHECKING:
    from holdfast.papers.results import CellResult, Results

#: ``smoke`` takes seconds and runs in CI, ``cpu`` takes minutes on two cores, ``paper`` is the document's own setting.
Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

#: Metrics that measure time: they differ from run to run, everything else must not.
CLOCKS = frozenset({"seconds", "train_seconds", "choosing"})

#: Which standard deviation the spread over seeds is: divided by n - 1 (``sample``) or by n (``population``).
SpreadKind = Literal["sample", "population"]

#: What a cell's function looks like: called with ``settings`` and ``seed`` by name, returns numbers by metric.
CellFunction = Callable[..., Mapping[str, float]]


@dataclass(frozen=True)
class Printed:
    """A number as the document prints it.

    Attributes:
        mean: the number.
        spread: what stands behind its plus-minus sign, where there is one.
    """

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Cell:
    """One entry of a table, computed once per seed.

    Attributes:
        name: where it stands, such as ``cmnist/erm``; what comes before the first slash groups the rows.
        function: ``module:function``, importable in a fresh process; takes ``settings`` and ``seed`` by name and
            returns finite numbers by metric. It runs on one thread.
        settings: everything that determines the outcome besides the seed, as plain JSON values.
        depends: modules of holdfast that only this cell needs, in addition to the experiment's; a change there
            recomputes this cell and leaves the others cached.
        most_seeds: run it under so many of the run's seeds, the first ones; under all of them by default.
    """

    name: str
    function: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    depends: tuple[str, ...] = ()
    most_seeds: int | None = None

    def seeds_of(self, seeds: Sequence[int]) -> tuple[int, ...]:
        """Those of the run's seeds that this cell is computed under."""
        return tuple(seeds[: self.most_seeds])


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds for our results.

    Attributes:
        holds: whether it does.
        evidence: the numbers it was decided on, in a phrase.
    """

    holds: bool
    evidence: str


@dataclass(frozen=True)
class Claim:
    """What the document says, as a predicate over our results.

    Attributes:
        name: the claim in the document's sense, as a sentence.
        check: decides it. Reads `Results.mean`, `Results.spread` and `Results.values`.
        scales: where the claim makes sense; elsewhere it is reported as not checked, which doesn't count as holding.
    """

    name: str
    check: Callable[[Results], Verdict]
    scales: tuple[Scale, ...] = SCALES


@dataclass(frozen=True)
class Grid:
    """How to show cells that fill several rows of a table each.

    A cell ``COLUMN/anything`` that gives the metric ``ROW/mean`` has the entry of that row and column, so that what one
    training run measures about many models needn't be computed once per row.

    Attributes:
        rows: heading by row, in the order of the table.
        columns: heading by column.
        mean: the number to show.
        spread: the number behind its slash.
        says: what an entry is, in a phrase.
    """

    rows: Mapping[str, str]
    columns: Mapping[str, str]
    mean: str
    spread: str
    says: str


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a document.

    Attributes:
        name: ``paper/experiment``, what users type and where its results lie.
        title: what it shows, in a line.
        source: document and table or figure.
        cells: what to compute at a scale.
        depends: packages or modules of holdfast whose source decides the numbers, such as ``("data", "training")``;
            results are stale once it changes. The module of a cell's function always counts.
        printed: the document's numbers by cell and metric. A cell on other data than the document's has another name,
            so that ours and theirs are only ever compared where they are the same thing.
        claims: what the document concludes.
        columns: heading of each metric to show, by metric; the results file has all metrics.
        grid: show entries of cells as a grid instead, see `Grid`.
        seeds: seeds by default.
        smoke_seeds: seeds by default at the smoke scale.
        scales: the scales there are.
        spread: which standard deviation the document's plus-minus is, as far as known; decides what ours is.
        digits: decimals to show.
        figure: draws complete results as an SVG file, which is written beside the results file.
        derive: adds metrics that compare cells with one another, such as an error relative to another cell's.
    """

    name: str
    title: str
    source: str
    cells: Callable[[Scale], tuple[Cell, ...]]
    depends: tuple[str, ...]
    printed: Mapping[str, Mapping[str, Printed]] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    grid: Grid | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    smoke_seeds: tuple[int, ...] = (0,)
    scales: tuple[Scale, ...] = SCALES
    spread: SpreadKind = "sample"
    digits: int = 1
    figure: Callable[[Results], str] | None = None
    derive: Callable[[tuple[CellResult, ...]], tuple[CellResult, ...]] | None = None

    def __post_init__(self) -> None:
        if self.name.count("/") != 1 or not all(self.name.split("/")):
            raise ConfigError(f"the experiment's name is {self.name!r}; give it as 'paper/experiment'")

    def cells_at(self, scale: Scale) -> tuple[Cell, ...]:
        """The cells of a scale.

        Raises:
            ConfigError: if there is no such scale, or two cells share a name.
        """
        if scale not in self.scales:
            raise ConfigError(f"{self.name} has no scale {scale!r}{nearest(scale, self.scales)}")
        cells = self.cells(scale)
        names = [cell.name for cell in cells]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ConfigError(f"{self.name} has two cells named {min(twice)!r} at scale {scale}; rename one")
        return cells

    def default_seeds(self, scale: Scale) -> tuple[int, ...]:
        """The seeds of a run that names none."""
        return self.smoke_seeds if scale == "smoke" else self.seeds


def load_function(reference: str) -> CellFunction:
    """The function a cell names.

    Args:
        reference: ``module:function``.

    Returns:
        The function.

    Raises:
        ConfigError: if there is no such module or function.
    """
    module, _, name = reference.partition(":")
    try:
        found: CellFunction = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"the cell function {reference!r} can't be imported ({error}); give it as 'module:function'"
        ) from error
    return found
