"""TensorBoard as a listener of `holdfast.training.fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.errors import MissingDependencyError
from holdfast.integrations.trackers.scalars import scalars
from holdfast.training.events import Event


class TensorBoard:
    """Writes the scalars of every event against optimizer steps, and flushes after each epoch.

    A run that continues writes a second file, which hides what the first one had beyond the checkpoint.

    Args:
        folder: where the event files go; made with the first scalar.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        """Write an event down."""
        values = scalars(event)
        if values and self._writer is None:
            self._writer = _open(self._folder, event.step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, event.step)
        if self._writer is None or event.kind == "step":
            return
        self._writer.flush()
        if event.kind == "end":
            self._writer.close()
            self._writer = None


def _open(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            "TensorBoard is not installed; pip install 'holdfast[tensorboard]', or leave the tracker out"
        ) from error
    continued = folder.exists() and any(folder.iterdir())
    return SummaryWriter(str(folder), purge_step=step if continued else None)
