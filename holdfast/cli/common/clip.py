"""What the commands for vision-language models share: data sets by name, the tower, a bar while one is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, field, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.errors import ConfigError, DataError, nearest
from holdfast.multimodal.backends import TwoTowerModel
from holdfast.multimodal.backends.towers import load_tower
from holdfast.multimodal.tasks.catalog import CLIP_DATA
from holdfast.multimodal.tasks.task import ClipData, ClipTask

DEFAULT_CLIP_DATA = "shapes"


def named_clip_data(data: str) -> tuple[type[ClipData], Path | None]:
    """The data set that ``--data`` names, and the folder with images where it names one.

    Raises:
        ConfigError: if it is neither.
    """
    if data in CLIP_DATA:
        return CLIP_DATA[data], None
    if Path(data).is_dir():
        return CLIP_DATA["folder"], Path(data).resolve()
    raise ConfigError(
        f"there is no data set and no folder {data!r} for vision-language models{nearest(data, CLIP_DATA)}"
    )


def data_field(data_class: type[ClipData], folder: Path | None) -> Any:
    """The data set's place among the options of a command: with a default where none of its fields must be given."""
    if folder is not None:
        return field(default=data_class(path=folder))  # type: ignore[call-arg]
    required = [f for f in fields(data_class) if f.default is MISSING and f.default_factory is MISSING]
    return field() if required else field(default_factory=data_class)


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
    """The tower that was asked for, and the data as it takes them.

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
    with bar(console, "pre-training the small tower", "epochs") as told:
        found = load_tower(tower or data.tower, root, seed=seed, progress=lambda done, of, _: told(done, of))
    found.to(device)
    task = data.load(root, found.preprocessing)
    if templates is None:
        return found, task
    return found, replace(task, wording=replace(task.wording, templates=read_templates(templates)))


@contextmanager
def bar(console: Console, title: str, unit: str) -> Iterator[Any]:
    """A bar that appears when it is first told something."""
    columns = (
        TextColumn(f"[bold]{title}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(compact=True),
    )
    progress = Progress(*columns, console=console)
    bars: list[Any] = []

    def tell(done: int, of: int) -> None:
        if not bars:
            progress.start()
            bars.append(progress.add_task(title, total=of))
        progress.update(bars[0], completed=done)

    try:
        yield tell
    finally:
        if bars:
            progress.stop()
