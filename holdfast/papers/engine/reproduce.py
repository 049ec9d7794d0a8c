"""Run an experiment: compute its cells, keep them, put them beside the printed numbers, judge its claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.papers.engine.execute import CellOutcome, execute
from holdfast.papers.engine.experiment import Experiment
from holdfast.papers.engine.results import Results
from holdfast.papers.engine.store import Store


def reproduce(
    experiment: Experiment,
    store: Store,
    seeds: Sequence[int] | None = None,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    data_root: Path | None = None,
    listener: Callable[[CellOutcome], None] | None = None,
) -> Results:
    """Compute what is not known yet and judge the claims; the store has the outcomes, and its `Store.write` keeps them.

    Args:
        experiment: what to reproduce.
        store: the results of its document at the scale that is wanted.
        seeds: which seeds; the experiment's by default.
        cache: folder of computed cells, see `holdfast.papers.engine.execute.default_cache`.
        jobs: processes at a time; by default one per core.
        fresh: compute also what is cached.
        data_root: folder of the data sets; the variable HOLDFAST_DATA by default.
        listener: called with the outcome of every cell and seed.

    Returns:
        The results, whose `failed` says whether a cell did not finish.
    """
    chosen = tuple(experiment.default_seeds(store.scale) if seeds is None else seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise ConfigError(f"the seeds are {', '.join(map(str, chosen)) or 'none'}; give different numbers from 0")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}; give at least 1")
    outcomes = execute(
        experiment.cells_at(store.scale),
        chosen,
        cache=cache,
        jobs=jobs,
        fresh=fresh,
        environment=data_variables(data_root),
        listener=listener,
    )
    return store.put(experiment, chosen, outcomes)


def data_variables(data_root: Path | None) -> dict[str, str]:
    """What tells workers where the data sets are."""
    return {} if data_root is None else {"HOLDFAST_DATA": str(data_root.expanduser().resolve())}
