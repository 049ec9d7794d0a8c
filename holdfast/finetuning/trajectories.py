"""Loss trajectories: what a model's loss on every example was along its training, and where they are kept.

A run records a point at a time, each into a file of its own that appears as a whole or not at all, so a killed run
loses nothing. Files are parquet, keyed by example id. A point knows which data, model and settings it belongs to;
points of something else are refused, not mixed in.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from holdfast.errors import CheckpointError, ConfigError, DataError
from holdfast.files import write_atomically
from holdfast.finetuning.language_models.losses import MOST_TOKENS, Floats, Reduction, trajectory_point
from holdfast.finetuning.language_models.tokens import Ints, TokenPairs
from holdfast.training.precision import Precision
from holdfast.training.ranks import ALONE, Ranks

_KEY, _SECONDS = b"holdfast", b"holdfast.seconds"
_GLANCE = 32  # examples by which a loaded model is recognised


@dataclass(frozen=True)
class Seconds:
    """How long it took to get trajectories, up to their last point, without what a killed run had to repeat.

    Attributes:
        training: the steps between the points.
        recording: the points.
        recording_by_model: what the points should have taken, given the training, where it is known: a forward pass
            costs a third of a training step on the same tokens.
    """

    training: float
    recording: float
    recording_by_model: float | None = None


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Losses of examples at several steps of a training.

    Attributes:
        ids: of the examples, int64 of shape (n,).
        losses: float32 of shape (n, T).
        steps: optimizer steps of the points, increasing, of length T.
        undefined: examples without a loss, because nothing of their response is left; bool of shape (n,).
        key: which data, model and settings they belong to, as far as it is known; ``data`` is the fingerprint of the
            prompts and responses.
        seconds: how long they took; not kept in files, which are the same for equal runs.
    """

    ids: Ints
    losses: Floats
    steps: tuple[int, ...]
    undefined: NDArray[np.bool_]
    key: Mapping[str, Any] = field(default_factory=dict)
    seconds: Seconds | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, points: Sequence[int]) -> Trajectories:
        """Only some of the points, by their places."""
        return replace(self, losses=self.losses[:, list(points)], steps=tuple(self.steps[place] for place in points))

    def thinned(self, count: int) -> Trajectories:
        """`count` points at equal strides, the last one kept.

        Raises:
            ConfigError: if there are fewer points.
        """
        self._require(count)
        stride = len(self.steps) // count
        return self.at(range(len(self.steps) - 1 - stride * (count - 1), len(self.steps), stride))

    def dense(self, count: int, phase: str) -> Trajectories:
        """`count` neighbouring points from the ``early``, ``middle`` or ``late`` part of the training.

        Raises:
            ConfigError: if there are fewer points, or no such part.
        """
        self._require(count)
        rest = len(self.steps) - count
        starts = {"early": 0, "middle": rest // 2, "late": rest}
        if phase not in starts:
            raise ConfigError(f"there is no part {phase!r} of a trajectory; give early, middle or late")
        return self.at(range(starts[phase], starts[phase] + count))

    def _require(self, count: int) -> None:
        if not 1 <= count <= len(self.steps):
            raise ConfigError(f"{count} points were asked for and there are {len(self.steps)}")

    def save(self, path: Path) -> None:
        """Write one parquet file: ``id``, ``undefined`` and a column ``loss_STEP`` per point, and the key."""
        columns: dict[str, Any] = {"id": self.ids, "undefined": self.undefined}
        columns |= {f"loss_{step}": self.losses[:, place] for place, step in enumerate(self.steps)}
        write_atomically(path, _parquet(columns, {_KEY: self.key}))

    @classmethod
    def load(cls, path: Path) -> Trajectories:
        """Read what `save` wrote, or others did; columns may be in any order, and so may rows.

        Returns:
            The trajectories, by increasing ids.

        Raises:
            DataError: if the file isn't there, can't be read, or holds no trajectories.
        """
        columns, key = _read(path)
        names = [name for name in columns if name.startswith("loss_")]
        if "id" not in columns or not names:
            raise DataError(f"{path} holds no trajectories; they have columns id and loss_STEP")
        for name in names:
            if not name.removeprefix("loss_").isdecimal():
                raise DataError(f"{path} has a column {name!r}, which names no step; leave it out, or give it a number")
        for name, kinds, wanted in (("id", "iu", "whole numbers"), *((name, "iuf", "numbers") for name in names)):
            if columns[name].dtype.kind not in kinds:
                raise DataError(f"the column {name!r} of {path} doesn't hold {wanted}; write it as {wanted}")
        points = {int(name.removeprefix("loss_")): name for name in names}
        steps, order = tuple(sorted(points)), np.argsort(columns["id"], kind="stable")
        losses = np.stack([columns[points[step]] for step in steps], 1).astype(np.float32)
        undefined = columns.get("undefined", ~np.isfinite(losses).all(1)).astype(bool)
        return cls(columns["id"].astype(np.int64)[order], losses[order], steps, undefined[order], key)


class TrajectoryRecorder:
    """Records the losses of all examples at chosen steps of a training.

    Call `record` after each optimizer step, or let `holdfast.integrations.trajectories` do so inside transformers'
    Trainer. Nothing of the training changes by it: no weight, no random number, no order.

    Args:
        folder: where points are kept; made if it is missing.
        tokens: the examples to look at, which needn't be those that are trained on.
        every: look after every so many optimizer steps.
        steps: or after these.
        first: but not before so many: a warm-up that begins at a rate of 0 leaves the model as it was, and the
            untrained model is no part of a trajectory.
        ids: of the examples; their positions by default.
        key: what decides the losses besides the step, as plain values: data, model, template. A folder with points
            under another key is refused.
        reduction: mean or sum of the token losses.
        processes: those that share the work; all must call `record`.
        most_tokens: padded tokens in a forward pass.
        precision: in which numbers products are computed.

    Raises:
        ConfigError: if it isn't said when to look, or the folder has points of another run.
    """

    def __init__(
        self,
        folder: Path,
        tokens: TokenPairs,
        *,
        every: int | None = None,
        steps: Collection[int] | None = None,
        first: int = 1,
        ids: Ints | None = None,
        key: Mapping[str, Any] | None = None,
        reduction: Reduction = "mean",
        processes: Ranks = ALONE,
        most_tokens: int = MOST_TOKENS,
        precision: Precision | None = None,
    ) -> None:
        if (every is None) == (steps is None):
            raise ConfigError("losses are recorded every so many steps, or after given ones; give one of the two")
        if every is not None and every < 1:
            raise ConfigError(f"losses are recorded every {every} steps; give at least 1")
        if steps is not None and (not steps or min(steps) < 1):
            raise ConfigError(f"losses are recorded after the steps {sorted(steps)}; give some, the first of them 1")
        self.folder, self.tokens, self._every, self._first = folder, tokens, every, first
        self._steps = None if steps is None else frozenset(steps)
        self._ids = np.arange(len(tokens)) if ids is None else ids
        self._key = {**(key or {}), "examples": len(tokens), "reduction": reduction}
        self._reduction, self._processes = reduction, processes
        self._how: dict[str, Any] = {"most_tokens": most_tokens, "precision": precision}
        self._since = time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        # Looked at once, before any process can have written: all processes agree on what is due without a message.
        self._recorded = set(self.points())
        for step, path in self.points().items():
            recorded = _read(path)[1]
            if recorded != json.loads(json.dumps(self._key)):
                changed = sorted(name for name in {*recorded, *self._key} if recorded.get(name) != self._key.get(name))
                raise ConfigError(
                    f"{folder} has the losses of step {step} from a run with another {', '.join(changed)}; "
                    "continue that run with its own settings, or choose another folder"
                )

    def points(self) -> dict[int, Path]:
        """The points that there are, by step."""
        return {int(path.stem.removeprefix("step-")): path for path in sorted(self.folder.glob("step-*.parquet"))}

    def due(self, step: int) -> bool:
        """Whether a point belongs after this many steps and isn't there yet."""
        return self._belongs(step) and step not in self._recorded

    def _belongs(self, step: int) -> bool:
        if self._steps is not None:
            return step in self._steps
        assert self._every is not None
        return step >= self._first and step % self._every == 0

    def record(self, model: nn.Module, step: int, progress: Callable[[int, int], None] | None = None) -> bool:
        """Record a point if one is due.

        Args:
            model: as it is after `step` optimizer steps.
            step: how many steps there were.
            progress: told how many of how many examples are done.

        Returns:
            Whether a point was recorded.
        """
        began = time.perf_counter()
        if not self.due(step):
            if step in self._recorded:
                self._since = began
            return False
        losses = trajectory_point(
            model,
            self.tokens,
            reduction=self._reduction,
            processes=self._processes,
            progress=progress,
            **self._how,
        )
        if not bool(np.isfinite(losses).all()):
            raise DataError(
                f"after step {step} some losses are not finite, so the proxy has diverged; lower its learning rate"
            )
        if self._processes.is_main:
            taken = Seconds(began - self._since, time.perf_counter() - began)
            notes = {_KEY: self._key, _SECONDS: asdict(taken)}
            write_atomically(self._path(step), _parquet({"id": self._ids, "loss": losses}, notes))
        self._recorded.add(step)
        self._since = time.perf_counter()
        return True

    def check(self, model: nn.Module, step: int) -> None:
        """Compare a model that was loaded from a checkpoint with the losses that were recorded at its step.

        transformers 5.22's Trainer, for one, resumes a GPT-NeoX without its output layer and says nothing.

        Raises:
            CheckpointError: if some examples have other losses than were recorded.
        """
        if not self._path(step).exists():
            return
        some = np.arange(min(len(self.tokens), _GLANCE))
        known = _read(self._path(step))[0]["loss"][some]
        losses = trajectory_point(model, self.tokens.part(some), reduction=self._reduction, **self._how)
        if not np.allclose(losses, known, rtol=0.02, atol=0.02):
            raise CheckpointError(
                f"the model that training continues with isn't the one that was recorded after step {step} in "
                f"{self.folder}: a loss of {known[0]:.4g} was recorded and is {losses[0]:.4g} now; the checkpoint was "
                "not loaded as a whole"
            )

    def trajectories(self) -> Trajectories:
        """All points so far, in the order of their steps.

        Raises:
            CheckpointError: if there are none.
        """
        self._processes.wait()  # the main one may still be writing the last
        points = self.points()
        if not points:
            first = self._every if self._steps is None else min(self._steps)
            raise CheckpointError(f"no losses are recorded in {self.folder} yet; train for at least {first} steps")
        losses = np.empty((len(self.tokens), len(points)), np.float32)
        for place, step in enumerate(sorted(points)):
            losses[:, place] = _read(points[step])[0]["loss"]
        return Trajectories(
            self._ids, losses, tuple(sorted(points)), self.tokens.undefined, self._key, _seconds(points.values())
        )

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.parquet"


def _parquet(columns: Mapping[str, Any], notes: Mapping[bytes, Any]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - takes a while
    import pyarrow.parquet as pq  # noqa: PLC0415

    buffer = io.BytesIO()
    written = {name: json.dumps(note) for name, note in notes.items()}
    pq.write_table(pa.table(dict(columns)).replace_schema_metadata(written), buffer)
    return buffer.getvalue()


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 - takes a while
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} can't be read as parquet ({str(error).partition(chr(10))[0]})") from error
    key = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    return {name: table.column(name).to_numpy() for name in table.column_names}, key


def _seconds(points: Iterable[Path]) -> Seconds | None:
    """The sum over points; None where one doesn't say."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - takes a while

    notes = [pq.read_schema(path).metadata or {} for path in points]
    if any(_SECONDS not in note for note in notes):
        return None
    taken = [Seconds(**json.loads(note[_SECONDS])) for note in notes]
    return Seconds(sum(one.training for one in taken), sum(one.recording for one in taken))
