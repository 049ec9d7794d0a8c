"""What the commands for vision-language models share: data sets by name, the tower, a bar while one is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.errors import DataError
from holdfast.models.devices import find_device
from holdfast.multimodal.backends import TwoTowerModel
from holdfast.multimodal.backends.towers import load_tower
from holdfast.multimodal.tasks.task import ClipData, ClipTask

DEFAULT_CLIP_DATA = "shapes"
#: What data sets and methods of these commands are for, in error messages.
FOR_CLIP = " for vision-language models"


def read_templates(path: Path) -> tuple[str, ...]:
    """Sentences with one slot each, from a text file.

    Raises:
        DataError: if the file can't be read or is empty.
    """
    try:
        lines = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the templates {path} can't be read ({error}); give a sentence with {{}} per line") from error
    if not lines:
        raise DataError(f"{path} has no templates; give a sentence with {{}} per line")
    return lines


def load_subject(
    data: ClipData, tower: str | None, root: Path, templates: Path | None, *, seed: int, device: str, console: Console
) -> tuple[TwoTowerModel, ClipTask]:
    """The tower, and the data in the form that it reads.

    Args:
        data: the data set with its options.
        tower: a tower's name; the data set's usual one by default.
        root: the data root.
        templates: a file with sentences, instead of the task's own.
        seed: of a tower that must first be trained.
        device: where to put it.
        console: where progress is shown.

    Returns:
        Both.
    """
    place = find_device(device)
    with bar(console, "pre-training the small tower", "epochs") as show:
        model = load_tower(tower or data.tower, root, seed=seed, progress=lambda done, of, _: show(done, of))
    model.to(place)
    task = data.load(root, model.preprocessing)
    if templates is None:
        return model, task
    return model, replace(task, wording=replace(task.wording, templates=read_templates(templates)))


@contextmanager
def bar(console: Console, title: str, unit: str) -> Iterator[Any]:
    """A bar that appears when there is something to show."""
    columns = (
        TextColumn(f"[bold]{title}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(compact=True),
    )
    progress = Progress(*columns, console=console)
    bars: list[Any] = []

    def show(done: int, of: int) -> None:
        if not bars:
            progress.start()
            bars.append(progress.add_task(title, total=of))
        progress.update(bars[0], completed=done)

    try:
        yield show
    finally:
        if bars:
            progress.stop()
