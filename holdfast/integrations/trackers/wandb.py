"""Weights & Biases as a listener of `holdfast.training.fit` and of federations: one of its runs per run directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import MissingDependencyError
from holdfast.integrations.trackers.scalars import scalars
from holdfast.training.events import Event

#: The axis that everything is drawn against: a run that continues may go back to the step of its checkpoint, which
#: Weights & Biases' own count of steps can't.
_AXIS = "step"
#: What is not collected: printed lines, the repository, code, installed packages, the machine and its load.
_QUIET: Mapping[str, Any] = {
    "console": "off", "silent": True, "disable_git": True, "disable_code": True, "disable_job_creation": True,
    "x_save_requirements": False, "x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True,
}  # fmt: skip


class WeightsAndBiases:
    """Logs the scalars of every event against optimizer steps (of a federation, rounds).

    Its own settings hold: ``WANDB_MODE=offline`` writes files only, for ``wandb sync``; ``WANDB_PROJECT`` names another
    project. A run directory that is continued goes on in its run, which has a name made of the directory's place.
    Beside numbers and the configuration only its own telemetry is sent, nothing of the machine or the program.

    Args:
        path: the run directory, which names the run; its files go to ``wandb/`` there.
        config: what determines the run.
        project: where to log, where ``WANDB_PROJECT`` does not say.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], *, project: str = "holdfast") -> None:
        self._path = path
        self._config = config
        self._project = project
        self._run: Any = None

    def __call__(self, event: Event) -> None:
        """Log an event."""
        if event.kind == "step":
            return
        if self._run is None:
            self._run = self._begin()
        if values := scalars(event):
            self._run.log({**values, _AXIS: event.step})
        if event.kind == "end":
            self._run.finish()
            self._run = None

    def _begin(self) -> Any:
        wandb = _package()
        place = str(self._path.resolve())
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or self._project,
            id=hashlib.blake2b(place.encode(), digest_size=8).hexdigest(),
            name=self._path.name,
            dir=place,
            config=dict(self._config),
            resume="allow",
            reinit="create_new",
            save_code=False,
            settings=wandb.Settings(**_QUIET),
        )
        run.define_metric("*", step_metric=_AXIS)
        return run


def _package() -> Any:
    try:
        import wandb  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            "Weights & Biases is not installed; pip install 'holdfast[wandb]', or leave the tracker out"
        ) from error
    return wandb
