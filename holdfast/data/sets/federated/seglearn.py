"""Smart watches of ten people, one on each arm: the 20 natural clients of the package `seglearn` (BSD licence).

Each watch recorded seven shoulder exercises by accelerometer and gyroscope at 50 Hz, one series per exercise (Burns et
al., 2018, https://arxiv.org/abs/1802.01489). A client is a watch: bodies, arms and ways to wear it differ. Series are
cut into windows, and a window into features; a client's first windows of an exercise are for training, the last for
the test, so that nothing is tested on its neighbours in time.

The recordings come with the package, which is not imported and never downloaded. Its file is a pickle, and loading one
runs what it says: so its bytes are compared with those that were looked at, and no others are loaded.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.clients.clients import ClientPart, Clients, Task
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.packages import packaged_folder
from holdfast.errors import ConfigError, DataError, nearest

#: Exercises by the names of the data: pendulum, abduction, forward elevation, internal and external rotation,
#: trapezius extension, upright row.
EXERCISES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")

_FILE = "watch_dataset.npy"
_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
_HERTZ = 50
#: Shares of a series, in time, whose windows are for training and for validation; the rest is for the test.
_TRAINING, _VALIDATION = 0.72, 0.08


@register_federation
@dataclass(frozen=True)
class SmartWatches(FederatedData):
    """A client per watch: ten people, two arms each.

    Two exercises are two classes for a linear SVM (a margin), more are as many classes.

    Attributes:
        exercises: names of those to tell apart, see `EXERCISES`; all where none is named.
        seconds: length of a window; windows don't overlap.
    """

    name = "seglearn"
    summary = "smart watches: 20 arms of 10 people, windows of 1 s of 6 channels, 2 to 7 shoulder exercises"
    recipe: ClassVar[Any] = TrainingRecipe("svm", 0.1, 32, rounds=200, cohort=10, local_steps=2)

    exercises: tuple[str, ...] = ("IR", "ER")
    seconds: float = 1.0

    def __post_init__(self) -> None:
        for exercise in self.exercises:
            if exercise not in EXERCISES:
                raise ConfigError(f"there is no exercise {exercise!r}{nearest(exercise, EXERCISES)}")
        if len(self.exercises) == 1 or len(set(self.exercises)) < len(self.exercises):
            raise ConfigError(
                f"the exercises are {', '.join(self.exercises)}; give two or more different ones, or none"
            )
        if not 0.1 <= self.seconds <= 20:
            raise ConfigError(f"windows of {self.seconds:g} seconds can't be cut; give 0.1 to 20")

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Cut the recordings of the installed package; nothing is drawn at random, so the seed changes nothing.

        Raises:
            MissingDependencyError: if the package is not installed.
            DataError: if it has other recordings than those of version 1.2.5.
        """
        recordings = read_recordings()
        wanted = self.exercises or EXERCISES
        classes = [EXERCISES.index(exercise) for exercise in wanted]
        length = round(self.seconds * _HERTZ)
        watches = sorted(set(zip(recordings["subject"].tolist(), recordings["side"].tolist(), strict=True)))
        clients = [_client(recordings, subject, side, classes, length) for subject, side in watches]
        counts = [torch.tensor([len(client[part][1]) for client in clients]) for part in range(3)]
        parts = [
            ClientPart.of_counts(
                torch.from_numpy(np.concatenate([client[part][0] for client in clients])),
                torch.from_numpy(np.concatenate([client[part][1] for client in clients])),
                counts[part],
            )
            for part in range(3)
        ]
        names = tuple(f"subject {subject}, {'right' if side else 'left'} arm" for subject, side in watches)
        task: Task = "margin" if len(classes) == 2 else "classes"
        return Clients(parts[0], parts[1], parts[2], classes=len(classes), task=task, names=names).check()


def read_recordings() -> dict[str, Any]:
    """The recordings of the installed package: ``X`` (series of shape (samples, 6)), ``y``, ``subject``, ``side``."""
    folder = packaged_folder("seglearn", "the recordings come in a package; pip install 'holdfast[seglearn]'")
    file = folder / "data" / _FILE
    try:
        packed = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} can't be read ({error.strerror}); pip install seglearn==1.2.5 again") from error
    if hashlib.sha256(packed).hexdigest() != _SHA256:
        raise DataError(f"{file} is not the file of seglearn 1.2.5, so it is not opened; pip install seglearn==1.2.5")
    # A pickle, but of these very bytes, which are known.
    content: dict[str, Any] = np.load(io.BytesIO(packed), allow_pickle=True).item()
    return content


def features_of(window: NDArray[Any]) -> NDArray[np.float64]:
    """Mean, deviation, least, largest and mean absolute step of each channel of a window (samples, channels)."""
    steps = np.abs(np.diff(window, axis=0)).mean(0)
    return np.concatenate([window.mean(0), window.std(0), window.min(0), window.max(0), steps])


def _client(
    recordings: dict[str, Any], subject: int, side: int, classes: list[int], length: int
) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Features and labels of a watch's training, validation and test windows, standardised by its training windows."""
    parts: list[list[tuple[NDArray[np.float64], int]]] = [[], [], []]
    mine = (recordings["subject"] == subject) & (recordings["side"] == side)
    for label, exercise in enumerate(classes):
        for place in np.flatnonzero(mine & (recordings["y"] == exercise)).tolist():
            series = np.asarray(recordings["X"][place], np.float64)
            windows = [series[first : first + length] for first in range(0, len(series) - length + 1, length)]
            ends = (round(_TRAINING * len(windows)), round((_TRAINING + _VALIDATION) * len(windows)))
            for number, window in enumerate(windows):
                part = 0 if number < ends[0] else 1 if number < ends[1] else 2
                parts[part].append((features_of(window), label))
    features = [np.array([row for row, _ in part]).reshape(len(part), -1) for part in parts]
    mean, deviation = features[0].mean(0), features[0].std(0)
    scale = np.where(deviation == 0, 1, deviation)
    labels = [np.array([label for _, label in part], np.int64) for part in parts]
    return [
        (((rows - mean) / scale if len(rows) else np.empty((0, len(mean)))).astype(np.float32), own)
        for rows, own in zip(features, labels, strict=True)
    ]
