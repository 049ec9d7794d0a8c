"""The progress of cells that worker processes compute: how many are done, and how long the others will take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from holdfast.papers.engine.execute import CellOutcome


class _TimeLeft(ProgressColumn):
    """Time left, from how fast cells were computed in this run; cells from the cache say nothing about it."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        computed, done_at = task.fields["computed"], task.fields["done_at"]
        if not computed or task.remaining is None:
            return Text("time left -:--:--", style="progress.remaining")
        each = (done_at - task.fields["started"]) / computed
        left = max(0, round(each * task.remaining - (time.monotonic() - done_at)))
        return Text(f"time left {left // 3600}:{left // 60 % 60:02}:{left % 60:02}", style="progress.remaining")


@contextmanager
def cell_progress(console: Console, title: str, total: int) -> Iterator[_Bar]:
    """A bar that is called with every outcome; those that failed are printed above it.

    Args:
        console: where to show.
        title: what is computed.
        total: how many outcomes there will be.
    """
    shape = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _TimeLeft())
    with Progress(*shape, console=console, transient=True) as progress:
        yield _Bar(progress, title, total)


class _Bar:
    """Counts outcomes on a progress bar and prints those that failed; a reason that many share, only once."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        now = time.monotonic()
        self.progress = progress
        self.computed = 0
        self.reasons: set[str] = set()
        self.task = progress.add_task(escape(title), total=total, computed=0, started=now, done_at=now)

    def __call__(self, outcome: CellOutcome) -> None:
        self.computed += not outcome.cached
        self.progress.update(self.task, advance=1, computed=self.computed, done_at=time.monotonic())
        if outcome.error is not None:
            where = escape(f"{outcome.cell}, seed {outcome.seed}")
            why = " for the same reason" if outcome.error in self.reasons else f": {escape(outcome.error)}"
            self.reasons.add(outcome.error)
            self.progress.console.print(f"[red]failed[/] {where}{why}")
