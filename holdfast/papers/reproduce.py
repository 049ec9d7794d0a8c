"""Run an experiment: compute its cells, put them beside the printed numbers, judge its claims."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import holdfast
from holdfast.errors import ConfigError
from holdfast.papers.execute import Outcome, execute
from holdfast.papers.experiment import Experiment, Scale
from holdfast.papers.fingerprint import fingerprint
from holdfast.papers.results import Results, collect, judge
from holdfast.training.run import git_commit, machine


def reproduce(
    experiment: Experiment,
    scale: Scale = "cpu",
    seeds: Sequence[int] | None = None,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    data_root: Path | None = None,
    listener: Callable[[Outcome], None] | None = None,
) -> Results:
    """Compute what is not known yet and judge the claims; nothing is written but the cache of cells.

    Args:
        experiment: what to reproduce.
        scale: how large.
        seeds: which seeds; the experiment's by default.
        cache: folder of computed cells, see `holdfast.papers.execute.default_cache`.
        jobs: processes at a time; by default one per core.
        fresh: compute also what is cached.
        data_root: folder of the data sets; the variable HOLDFAST_DATA by default.
        listener: called with the outcome of every cell and seed.

    Returns:
        The results, whose `complete` says whether every cell finished. Fingerprint, commit and date are those of the
        start.
    """
    chosen = tuple(experiment.default_seeds(scale) if seeds is None else seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise ConfigError(f"the seeds are {', '.join(map(str, chosen)) or 'none'}; give different numbers from 0")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}; give at least 1")
    cells = experiment.cells_at(scale)
    before = Results(
        experiment=experiment.name,
        scale=scale,
        commit=git_commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seeds=chosen,
        cells=(),
        claims=(),
        fingerprint=fingerprint(experiment, scale),
        environment=_environment(),
    )
    outcomes = execute(
        cells,
        chosen,
        depends=experiment.depends,
        cache=cache,
        jobs=jobs,
        fresh=fresh,
        environment=data_variables(data_root),
        listener=listener,
    )
    return judge(experiment, replace(before, cells=collect(experiment, cells, outcomes)))


def data_variables(data_root: Path | None) -> dict[str, str]:
    """What tells workers where the data sets are."""
    return {} if data_root is None else {"HOLDFAST_DATA": str(data_root.expanduser().resolve())}


def _environment() -> Mapping[str, Any]:
    return {**machine(), "uncommitted_changes": _uncommitted_changes()}


def _uncommitted_changes() -> bool | None:
    """Whether holdfast's code differs from its commit; None outside a repository."""
    try:
        status = subprocess.run(
            ["git", "status", "--porcelain", "--", "."],  # noqa: S607
            cwd=Path(holdfast.__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return bool(status.stdout.strip())
