"""What an experiment is: cells to compute, the numbers a document printed for them, and its claims as predicates.

A declaration holds no results, does no work and imports neither torch nor NumPy, so all of them can be listed at once.
A cell names what computes it by a name that outlives moves of the code and gives it plain settings, so it can run in
any process and be found again; what the document prints is kept beside it, never mixed with what we measured; and a
claim is a function of our results that says whether it holds, and by which number. A figure is declared like a table:
what its curves show are metrics, what its caption says are claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from holdfast.errors import ConfigError, nearest

if TYPE_CHECKING:
    from holdfast.papers.engine.results import CellResult, Results

#: ``smoke`` takes seconds and runs in CI, ``cpu`` takes minutes on two cores, ``paper`` is the document's own setting.
Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

#: Metrics that measure time: they differ from run to run, everything else must not.
CLOCKS = frozenset({"seconds", "train_seconds", "choosing"})

#: Which standard deviation the spread over seeds is: divided by n - 1 (``sample``) or by n (``population``).
SpreadKind = Literal["sample", "population"]


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
        kind: what computes it, a name of `holdfast.papers.engine.kinds`, which never changes. It runs on one thread.
        settings: everything that determines the outcome besides the seed, as plain JSON values.
        version: raised by one when the same settings give other numbers than before, on purpose. Results of an older
            version are shown as such, and no claim is judged on them.
        most_seeds: run it under so many of the run's seeds, the first ones; under all of them by default.
    """

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    most_seeds: int | None = None

    def seeds_of(self, seeds: Sequence[int]) -> tuple[int, ...]:
        """Those of the run's seeds that this cell is computed under."""
        return tuple(seeds[: self.most_seeds])


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds for our results.

    Attributes:
        holds: whether it does; None if our numbers can't tell, and `evidence` says why.
        evidence: the numbers it was decided on, in a phrase; the deciding one is always among them.
    """

    holds: bool | None
    evidence: str


@dataclass(frozen=True)
class Claim:
    """What the document says, as a predicate over our results.

    Attributes:
        name: the claim in the document's sense, as a sentence.
        check: decides it. Reads `Results.mean`, `Results.spread` and `Results.values`.
        scales: where the claim makes sense; elsewhere it is not judged, which doesn't count as holding.
        ours: True where the sentence or its threshold is ours and not the document's.
        why: why it fails, where it does: the document, the scale, our data, or unknown; one honest sentence.
    """

    name: str
    check: Callable[[Results], Verdict]
    scales: tuple[Scale, ...] = SCALES
    ours: bool = False
    why: str = ""


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
        golden: one or two cells of a few seconds at most, through the same code as `cells`, whose losses and weight
            norms are kept in the repository and computed at every commit, see `holdfast.papers.engine.golden`.
        printed: the document's numbers by cell and metric. A cell on other data than the document's has another name,
            so that ours and theirs are only ever compared where they are the same thing.
        claims: what the document concludes.
        columns: heading of each metric to show, by metric; the results file has all metrics.
        grid: show entries of cells as a grid instead, see `Grid`.
        notes: by scale, what a reader must know beside the verdicts.
        seeds: seeds by default.
        smoke_seeds: seeds by default at the smoke scale.
        scales: the scales there are.
        spread: which standard deviation the document's plus-minus is, as far as known; decides what ours is.
        digits: decimals to show.
        figure: ``module:function`` that draws complete results as an SVG file, written beside the results file.
        derive: adds metrics that compare cells with one another, such as an error relative to another cell's.
    """

    name: str
    title: str
    source: str
    cells: Callable[[Scale], tuple[Cell, ...]]
    golden: tuple[Cell, ...] = ()
    printed: Mapping[str, Mapping[str, Printed]] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    grid: Grid | None = None
    notes: Mapping[Scale, str] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    smoke_seeds: tuple[int, ...] = (0,)
    scales: tuple[Scale, ...] = SCALES
    spread: SpreadKind = "sample"
    digits: int = 1
    figure: str | None = None
    derive: Callable[[tuple[CellResult, ...]], tuple[CellResult, ...]] | None = None

    def __post_init__(self) -> None:
        if self.name.count("/") != 1 or not all(self.name.split("/")):
            raise ConfigError(f"the experiment's name is {self.name!r}; give it as 'paper/experiment'")

    @property
    def paper(self) -> str:
        """The document, as in the name."""
        return self.name.partition("/")[0]

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
