"""What a run's directory says, read once: names, epochs, changes of plan, and the scores there are so far.

A finished run is judged on the test set. One that was interrupted, or is still going on, has only its validation
scores; its record carries those of the best epoch so far and says so in `part`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.auto.record import Choice
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.report_tables import report_of_tables
from holdfast.training.health.check import Finding, Health
from holdfast.training.run import Run, understanding


@dataclass(frozen=True)
class RunRecord:
    """A run in one value.

    Attributes:
        path: its directory.
        status: ``finished``, ``running`` or ``interrupted``.
        data: name of the data set, empty where the configuration doesn't say.
        method: name of the method.
        model: name of the model, empty where the configuration doesn't say.
        seed: what names its random streams, where the configuration says.
        epochs_planned: how many epochs it was to have, warm-up included.
        epochs: its epoch events, oldest first.
        plans: its plan events, oldest first.
        report: how the chosen model fares; None before the first epoch's end.
        part: what `report` is on.
        last: the model after the last epoch on the test set, where the run is finished.
        select_by: the validation score that chose the model.
        best_epoch: the epoch whose model was chosen, from 0.
        best_full_epochs: passes over the training set until then.
        full_epochs: passes over the training set in all.
        seconds: time by activity.
        health: what was found of the method's assumptions; None where that was not looked at, as in older runs.
        choice: what ``--method auto`` tried and chose; None where the method was named.
        reference: how plain training fares on the same test set, where that is known.
    """

    path: Path
    status: str
    data: str
    method: str
    model: str
    seed: int | None
    epochs_planned: int | None
    epochs: tuple[dict[str, Any], ...]
    plans: tuple[dict[str, Any], ...]
    report: GroupReport | None
    part: Literal["test", "validation"]
    last: GroupReport | None
    select_by: str
    best_epoch: int | None
    best_full_epochs: float | None
    full_epochs: float | None
    seconds: dict[str, float]
    health: Health | None = None
    choice: Choice | None = None
    reference: GroupReport | None = None

    @classmethod
    def of(cls, run: Run) -> RunRecord:
        """Read the run's files; none of them is changed."""
        with understanding(run.path):
            return cls._read(run)

    @classmethod
    def _read(cls, run: Run) -> RunRecord:
        config, results, events = run.config, run.results, _since_start(run.metrics())
        epochs = tuple(event for event in events if event["event"] == "epoch")
        plans = tuple(event for event in events if event["event"] == "plan")
        best = next((event for event in reversed(epochs) if event["best"]), None)
        started = next((event for event in events if event["event"] == "start"), {})
        scored = results["test"] if results else best["validation"] if best else None
        chosen = results or {}
        return cls(
            path=run.path,
            status=run.status,
            data=_name_of(config.get("data")),
            method=_name_of(config.get("method")) or " + ".join(plans[0]["policies"] if plans else ()),
            model=_name_of(config.get("model")),
            seed=_setting(config, "seed"),
            epochs_planned=started.get("epochs"),
            epochs=epochs,
            plans=plans,
            report=None if scored is None else _whole(run, GroupReport.from_json(scored)),
            part="test" if results else "validation",
            last=GroupReport.from_json(results["test_last"]) if results else None,
            select_by=str(chosen.get("select_by") or _setting(config, "select_by") or ""),
            best_epoch=chosen.get("best_epoch", best["epoch"] if best else None),
            best_full_epochs=chosen.get("best_full_epochs", best["full_epochs"] if best else None),
            full_epochs=chosen.get("full_epochs", epochs[-1]["full_epochs"] if epochs else None),
            seconds=dict(chosen.get("seconds") or (epochs[-1]["seconds"] if epochs else {})),
            health=_health(results, events),
            choice=None if (made := run.choice) is None else Choice.from_json(made),
            reference=GroupReport.from_json(chosen["reference"]) if "reference" in chosen else None,
        )

    @property
    def finished(self) -> bool:
        """Whether the final scores are there."""
        return self.status == "finished"

    @property
    def restarts(self) -> list[int]:
        """Epochs completed when the method began to train again from the start."""
        pairs = zip(self.epochs, self.epochs[1:], strict=False)
        return [after["epoch"] for before, after in pairs if after["stage"] != before["stage"]]

    def when(self, step: int) -> float:
        """How many epochs were over after `step` optimizer steps, fractions included."""
        steps = [0, *(event["step"] for event in self.epochs)]
        return float(np.interp(step, steps, range(len(steps))))


def _since_start(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of the last beginning: a run killed before its first checkpoint begins again in the same file."""
    starts = [place for place, event in enumerate(events) if event["event"] == "start"]
    return events[starts[-1] :] if starts else events


def _health(results: Mapping[str, Any] | None, events: list[dict[str, Any]]) -> Health | None:
    """The findings of a finished run, or those so far: the last that was said by each check."""
    if results is not None:
        return Health.from_json(results["health"]) if "health" in results else None
    said = {event["check"]: Finding.from_json(event) for event in events if event["event"] == "health"}
    return Health.of(said.values()) if said else None


def _whole(run: Run, report: GroupReport) -> GroupReport:
    """The report with all its groups, where the run's record has only those at both ends and its tables are there."""
    if report.folded is None or run.results is None or not (run.path / "tables").exists():
        return report
    return report_of_tables(run.table, "test", report)


def _name_of(entry: object) -> str:
    if isinstance(entry, Mapping):
        entry = entry.get("name")
    return "" if entry is None else str(entry)


def _setting(config: Mapping[str, Any], key: str) -> Any:
    """The entry called `key`, at the top of the configuration or among the training settings."""
    return config.get(key, (config.get("training") or {}).get(key))
