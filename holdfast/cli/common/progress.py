"""The progress bar of a training run: where it stands, how the worst group fares, how long it will take."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.cli.common.health import show_finding
from holdfast.training.events import Event
from holdfast.training.health.check import Finding


class TrainingProgress:
    """A listener that draws a bar; use it as a context manager.

    Args:
        title: what is being trained.
        console: where to draw.
    """

    def __init__(self, title: str, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
        )
        self._task = self._progress.add_task(title, total=None, score="")

    def __call__(self, event: Event) -> None:
        """Move the bar."""
        if event.kind == "start":
            self._progress.update(self._task, total=event.values["epochs"])
        elif event.kind == "epoch":
            worst = event.values["validation"]["worst_accuracy"]
            self._progress.update(
                self._task,
                completed=event.epoch + 1,
                score=f"worst group {100 * worst:.1f}%",
            )
        elif event.kind == "health":
            show_finding(Finding.from_json(event.values), self._progress.console)
        elif event.kind == "step":
            left, done = event.values["steps_left"], event.values["steps_done"]
            self._progress.update(self._task, completed=event.epoch + done / max(done + left, 1))

    def resume(self, epochs: int, done: int) -> None:
        """Start a bar that is partly done."""
        self._progress.update(self._task, total=epochs, completed=done)

    def __enter__(self) -> TrainingProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class RoundsProgress(TrainingProgress):
    """The same for a federation: rounds, and the mean accuracy of benign clients, shared and first personal model."""

    def __call__(self, event: Event) -> None:
        """Move the bar."""
        if event.kind == "start":
            self.resume(event.values["rounds"], event.epoch)
            return
        shown: dict[str, Any] = {}
        if event.kind in ("epoch", "end"):
            means = [f"{label} {100 * summary['mean']:.1f}%" for label, summary in event.values.items()]
            shown["score"] = ", ".join(means[:2])
        self._progress.update(self._task, completed=event.epoch, **shown)
