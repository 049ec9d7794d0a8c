"""MLflow as a listener of `holdfast.training.fit`: one MLflow run per run directory, metrics and parameters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from holdfast.errors import MissingDependencyError
from holdfast.integrations.trackers.scalars import safe_names, scalars
from holdfast.training.events import Event

#: MLflow's own limits: entries per request, characters of a parameter.
_PARAMETERS, _METRICS, _CHARACTERS = 100, 1000, 6000
_PATH_TAG = "holdfast.run"


class MLflow:
    """Logs to the server or store that MLflow is set to (``MLFLOW_TRACKING_URI``), never through its global run.

    A run directory that is continued goes on in its MLflow run, which is found by a tag.

    Args:
        path: the run directory, which names the MLflow run.
        config: what determines the run; becomes the parameters.
        uri: of the server or store, where not MLflow's own setting.
        experiment: name of the experiment.
    """

    def __init__(
        self, path: Path, config: Mapping[str, Any], *, uri: str | None = None, experiment: str = "holdfast"
    ) -> None:
        self._path = path
        self._config = config
        self._uri = uri
        self._experiment = experiment
        self._client: Any = None
        self._run_id = ""

    def __call__(self, event: Event) -> None:
        """Log an event."""
        if event.kind == "step":
            return
        if self._client is None:
            self._client = _client(self._uri)
            self._run_id = self._find() or self._begin()
        self._log(scalars(event), event.step)
        if event.kind == "end":
            self._client.set_terminated(self._run_id)

    @property
    def _tag(self) -> str:
        return str(self._path.resolve()).replace("'", "_")

    def _find(self) -> str | None:
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is None:
            return None
        wanted = f"tags.`{_PATH_TAG}` = '{self._tag}'"
        runs = self._client.search_runs([experiment.experiment_id], wanted, max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def _begin(self) -> str:
        from mlflow.entities import Param  # noqa: PLC0415

        experiment = self._client.get_experiment_by_name(self._experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self._experiment)
        tags = {_PATH_TAG: self._tag}
        run_id = str(self._client.create_run(number, run_name=self._path.name, tags=tags).info.run_id)
        flat = dict(_flatten(self._config))
        named = zip(safe_names(list(flat)), flat.values(), strict=True)
        parameters = iter([Param(name, str(value)[:_CHARACTERS]) for name, value in named])
        while part := list(islice(parameters, _PARAMETERS)):
            self._client.log_batch(run_id, params=part)
        return run_id

    def _log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415

        now = int(time.time() * 1000)
        metrics = iter([Metric(name, value, now, step) for name, value in values.items()])
        while part := list(islice(metrics, _METRICS)):
            self._client.log_batch(self._run_id, metrics=part)


def _client(uri: str | None) -> Any:
    try:
        from mlflow import MlflowClient  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            "MLflow is not installed; pip install 'holdfast[mlflow]', or leave the tracker out"
        ) from error
    return MlflowClient(tracking_uri=uri)


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
