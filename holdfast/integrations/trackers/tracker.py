"""Trackers by name, and what happens when one fails.

A tracker that fails at its first event is an error, before training has cost anything: the package is missing, the
server doesn't answer. One that fails later is told once in a `HoldfastWarning` and left out from there on, because a
lost server is no reason to lose a run; everything it would have shown is in the run's ``metrics.jsonl``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, nearest
from holdfast.integrations.trackers.mlflow import MLflow
from holdfast.integrations.trackers.tensorboard import TensorBoard
from holdfast.integrations.trackers.wandb import WeightsAndBiases
from holdfast.training.events import Event, Listener
from holdfast.training.run import Run


class Guarded:
    """A listener whose late failure doesn't stop the run.

    Args:
        name: of the tracker, for the message.
        listener: the tracker.
    """

    def __init__(self, name: str, listener: Listener) -> None:
        self._name = name
        self._listener: Listener | None = listener
        self._works = False

    def __call__(self, event: Event) -> None:
        """Hand the event on."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except HoldfastError:
            raise
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            if not self._works:
                raise ConfigError(
                    f"the tracker {self._name} can't be used ({reason}); set it up or leave it out"
                ) from error
            self._listener = None
            warnings.warn(
                f"the tracker {self._name} failed in epoch {event.epoch} ({reason}) and is left out from here on; "
                "the run goes on and metrics.jsonl has everything",
                HoldfastWarning,
                stacklevel=2,
            )
        self._works = True


def trackers(names: Sequence[str], run: Run) -> list[Listener]:
    """Listeners for `holdfast.training.fit`.

    Args:
        names: any of ``tensorboard`` (writes to the run's folder ``tensorboard``), ``mlflow`` and ``wandb``.
        run: the run to be tracked.

    Returns:
        A listener for each name, in order.

    Raises:
        ConfigError: if a name is not known.
    """
    made: list[Listener] = []
    for name in names:
        if name not in _TRACKERS:
            raise ConfigError(f"there is no tracker {name!r}{nearest(name, _TRACKERS)}")
        made.append(Guarded(name, _TRACKERS[name](run)))
    return made


_TRACKERS: dict[str, Callable[[Run], Listener]] = {
    "tensorboard": lambda run: TensorBoard(run.path / "tensorboard"),
    "mlflow": lambda run: MLflow(run.path, run.config),
    "wandb": lambda run: WeightsAndBiases(run.path, run.config),
}
