"""Take old results for today's after a change that should change nothing, if a sample of cells agrees to the last bit.

Moving a function makes results stale that took hours. Whether the move changed them can be asked of the code itself:
cells are deterministic, so some that are computed again must give the same numbers. Which ones is drawn from today's
fingerprint, so nobody can pick them. The results file says that it was confirmed, by which cells, and keeps its date.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.papers.execute import Outcome, execute
from holdfast.papers.experiment import CLOCKS, Cell, Experiment
from holdfast.papers.fingerprint import cell_sources, digest, fingerprint
from holdfast.papers.reproduce import data_variables
from holdfast.papers.results import CellResult, Confirmation, Results
from holdfast.training.run import git_commit


@dataclass(frozen=True)
class Difference:
    """A number that came out otherwise.

    Attributes:
        cell: where.
        metric: which.
        before: what the results file has; not a number where it has nothing.
        now: what came out.
    """

    cell: str
    metric: str
    before: float
    now: float


def confirm(
    experiment: Experiment,
    results: Results,
    count: int,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    data_root: Path | None = None,
    listener: Callable[[Outcome], None] | None = None,
) -> tuple[Results, tuple[Difference, ...]]:
    """Compute some cells again and compare.

    Args:
        experiment: as it stands.
        results: complete ones of it, whose cells and claims are today's and whose code isn't.
        count: how many cells to compute, under one of the seeds.
        cache: folder of computed cells.
        jobs: processes at a time.
        data_root: folder of the data sets.
        listener: called with each outcome.

    Returns:
        The results as today's, and no differences; or the results as they were, and where they differ.

    Raises:
        ConfigError: if the experiment asks for something else now, or a cell fails.
    """
    now = fingerprint(experiment, results.scale)
    if count < 1:
        raise ConfigError(f"{count} cells confirm nothing; give at least 1")
    if not results.complete or results.fingerprint.declaration != now.declaration:
        raise ConfigError(
            f"the results of {experiment.name} are incomplete, or its cells or claims changed; run it instead"
        )
    seed, cells = sample(experiment, results, count)
    if not cells:
        raise ConfigError(f"nothing that cells of {experiment.name} run through has changed; its results need no look")
    every = [replace(cell, most_seeds=None) for cell in cells]
    outcomes = execute(
        every,
        [seed],
        depends=experiment.depends,
        cache=cache,
        jobs=jobs,
        environment=data_variables(data_root),
        listener=listener,
    )
    for outcome in outcomes:
        if outcome.error is not None:
            raise ConfigError(f"{outcome.cell} failed under seed {seed}: {outcome.error}")
    kept = {cell.name: cell for cell in results.cells}
    differences = tuple(
        difference
        for outcome in outcomes
        for difference in _compare(kept[outcome.cell], outcome, _place(kept[outcome.cell], results, seed))
    )
    if differences:
        return results, differences
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    confirmation = Confirmation(git_commit(), date, seed, tuple(cell.name for cell in cells))
    return replace(results, fingerprint=now, confirmed=(*results.confirmed, confirmation)), ()


def sample(experiment: Experiment, results: Results, count: int) -> tuple[int, tuple[Cell, ...]]:
    """A seed, and cells that have it and run through what changed, drawn from today's fingerprint.

    There may be fewer than wanted. Cells that don't run through changed code say nothing about it.
    """
    now = fingerprint(experiment, results.scale)
    changed = set(results.fingerprint.changed(now))

    def drawn(name: object) -> str:
        return digest([dict(now.sources), str(name)])

    touched = [
        cell for cell in experiment.cells_at(results.scale) if changed & set(cell_sources(cell, experiment.depends))
    ]
    shared = max((cell.seeds_of(results.seeds) for cell in touched), key=len, default=results.seeds)
    seed = min(shared, key=drawn)
    cells = [cell for cell in touched if seed in cell.seeds_of(results.seeds)]
    return seed, tuple(sorted(cells, key=lambda cell: drawn(cell.name))[:count])


def _place(cell: CellResult, results: Results, seed: int) -> int:
    return (cell.seeds or results.seeds).index(seed)


def _compare(before: CellResult, outcome: Outcome, place: int) -> Sequence[Difference]:
    found: Mapping[str, float] = outcome.metrics or {}
    differences = []
    for metric in sorted(set(found) - CLOCKS):
        old = before.metrics[metric].ours.values[place] if metric in before.metrics else math.nan
        if found[metric] != old:
            differences.append(Difference(before.name, metric, old, found[metric]))
    return differences
