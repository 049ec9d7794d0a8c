"""Measure stored cells again, those first that nobody has looked at for longest, within a budget of time.

Golden cells notice a change when it is made; this notices what they miss. One seed of a cell is computed afresh and
compared with what is stored, whatever came out is written down beside it, and the next run goes on with other cells, so
that by and by everything is measured again. On the same processor nothing may differ; on another one, small differences
of rounding grow in long training, and the recorded distance says how far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.papers.engine.execute import CellOutcome, execute
from holdfast.papers.engine.experiment import CLOCKS, SCALES, Cell, Experiment
from holdfast.papers.engine.reproduce import data_variables
from holdfast.papers.engine.store import Check, Store, StoredCell


@dataclass(frozen=True)
class Candidate:
    """A stored cell and the seed to compute.

    Attributes:
        store: where it is kept.
        cell: as it is declared.
        entry: what is kept.
        seed: the seed that was looked at longest ago.
    """

    store: Store
    cell: Cell
    entry: StoredCell
    seed: int


@dataclass(frozen=True)
class RecheckOutcome:
    """What a recheck found.

    Attributes:
        candidate: what was computed again.
        check: how far it is from what is stored; None if it failed.
        error: what went wrong, where something did.
    """

    candidate: Candidate
    check: Check | None
    error: str | None = None

    @property
    def alarming(self) -> bool:
        """Whether it failed, or differs on the processor that it was measured on, where nothing may."""
        if self.check is None:
            return True
        return self.check.farthest > 0 and self.elsewhere is False

    @property
    def elsewhere(self) -> bool:
        """Whether the stored value comes from another kind of processor, or from one that nobody wrote down."""
        return self.check is not None and self.candidate.entry.origin.get("processor") != self.check.processor


def candidates(folder: Path, papers: Sequence[Sequence[Experiment]]) -> list[Candidate]:
    """Stored cells of today's version, the ones looked at longest ago first, of equal ones the quickest."""
    candidates: dict[tuple[str, str], Candidate] = {}
    for experiments in papers:
        for scale in SCALES:
            store = Store(folder, experiments, scale)
            for experiment in store.experiments.values():
                for cell in experiment.cells_at(scale):
                    entry = store.entry(cell)
                    if entry is not None and entry.version == cell.version and entry.seeds:
                        named = replace(cell, name=f"{experiment.name}.{scale}:{cell.name}", most_seeds=None)
                        candidates.setdefault((scale, entry.key), Candidate(store, named, entry, _seed(entry)))
    return sorted(candidates.values(), key=lambda each: (each.entry.looked_at, each.entry.seconds))


def _seed(entry: StoredCell) -> int:
    """The seed whose last check is longest ago; those never checked come first."""
    last = {check.seed: check.date for check in entry.checks}
    return min(entry.seeds, key=lambda seed: (last.get(seed, ""), seed))


def recheck(
    chosen: Sequence[Candidate],
    *,
    cache: Path | None = None,
    data_root: Path | None = None,
    listener: Callable[[CellOutcome], None] | None = None,
) -> Iterator[RecheckOutcome]:
    """Compute candidates again, one by one, each written down as it comes, so that a stop loses nothing.

    Args:
        chosen: what to compute; the caller stops taking when its time is over.
        cache: folder of computed cells; what is in there is computed all the same.
        data_root: folder of the data sets.
        listener: called with each outcome.
    """
    for candidate in chosen:
        (outcome,) = execute(
            [candidate.cell],
            [candidate.seed],
            cache=cache,
            jobs=1,
            fresh=True,
            environment=data_variables(data_root),
            listener=listener,
        )
        if outcome.metrics is None:
            yield RecheckOutcome(candidate, None, outcome.error)
            continue
        check = compare(candidate.entry, outcome.metrics, outcome)
        store = candidate.store
        entry = store.entry(candidate.cell)
        assert entry is not None
        store.replace_entry(replace(entry, checks=(*entry.checks, check)))
        store.write()
        yield RecheckOutcome(candidate, check)


def compare(entry: StoredCell, metrics: Mapping[str, float], outcome: CellOutcome) -> Check:
    """How far a fresh outcome is from what is stored.

    A stored metric that is missing now counts as wholly different; one that the code has learned to give since doesn't.
    """
    place = entry.seeds.index(outcome.seed)
    distances = {}
    for metric in sorted(set(entry.values) - CLOCKS):
        if metric not in metrics:
            distances[metric] = 1.0
            continue
        before, now = entry.values[metric][place], metrics[metric]
        distances[metric] = abs(now - before) / max(abs(before), abs(now)) if now != before else 0.0
    metric = max(distances, key=lambda name: distances[name])
    return Check(
        date=str(outcome.origin["date"]),
        commit=outcome.origin.get("commit"),
        seed=outcome.seed,
        farthest=distances[metric],
        metric=metric,
        processor=str(outcome.origin.get("processor", "")),
    )
