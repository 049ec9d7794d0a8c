"""A run is a directory: what was asked for, what happened, and what came out of it.

::

    config.yaml            everything that determines the run
    environment.json       what kind of run it is, versions, machine, command, commit
    choice.json            what ``--method auto`` tried and chose
    schema.json            how data of the user's own was read, so that other data is read in the same way
    metrics.jsonl          one event per line
    plans/*.parquet        what was trained on after each change of plan, by example id
    checkpoints/last.safetensors   the whole state: a killed run continues from it to the bit
    model.json             what the model is made from, where it has a name; `ModelSpec` rebuilds it
    weights.safetensors    the chosen model's state dict, under its own names; the header says which inputs it takes
    predictions.parquet    the chosen model on the test set, by example id
    tables/*.parquet       of very many groups, what results.json leaves out: every group and class, what was predicted
    results.json           the final scores; its presence says that the run is finished
    report.html            the page to look at

Everything is written atomically, except metrics.jsonl, which is appended to and cut back to the checkpoint on resume.
A folder may have been damaged, cut or made up on its way here: whatever is read from it is what this module says, or an
error that names the file.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Literal, cast, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml

from holdfast.data.examples import Examples
from holdfast.errors import CheckpointError, ConfigError, HoldfastError
from holdfast.files import plain_values, read_mapping, remove_leftovers, write_atomically
from holdfast.models.spec import ModelSpec
from holdfast.provenance import git_commit, machine
from holdfast.training.clock import Clock
from holdfast.training.evaluation.evaluation import Predictions
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.report_tables import tables_of
from holdfast.training.events import Event
from holdfast.training.metrics_file import MetricsFile, MetricsMark
from holdfast.training.model_card import ModelCard
from holdfast.training.plan import Plan
from holdfast.training.state import load_state, save_state
from holdfast.training.weights import load_weights, save_weights, weights_header

#: What is run: a training by `fit`, of a vision-language model by `fit --task clip`, a federation, a choice of data.
RunKind = Literal["fit", "clip", "federation", "selection"]

#: What comes of values that are not what they should be.
_NONSENSE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    MemoryError,
)

_WEIGHTS = "weights.safetensors"
_MODEL = "model.json"
_CHOICE = "choice.json"


class Run:
    """A run directory. Use `Run.create` for a new one and `Run.open` for one that exists.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._metrics = MetricsFile(path / "metrics.jsonl")

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        *,
        kind: RunKind = "fit",
        folders: Sequence[str] = ("checkpoints", "plans"),
    ) -> Run:
        """Make the directory and write down what was asked for.

        Args:
            path: where; must not hold a run already.
            config: everything that determines the run, plain values.
            kind: what is run, which decides how its page looks and which command continues it.
            folders: made below it, for what it will write.

        Raises:
            ConfigError: if there is a run at `path` or it can't be written to.
        """
        cls.check_free(path)
        try:
            for folder in (path, *(path / name for name in folders)):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the run directory {path} can't be made ({error.strerror}); choose another place with --out"
            ) from error
        run = cls(path)
        run._write("environment.json", json.dumps({"kind": kind, **machine(), **_occasion()}, indent=2))
        # Last: a directory is a run once it has this file.
        run._write("config.yaml", yaml.safe_dump(plain_values(config), sort_keys=False))
        return run

    @staticmethod
    def check_free(path: Path) -> None:
        """Refuse a place that holds a run, for those who work before they create one.

        Raises:
            ConfigError: if there is a run at `path`.
        """
        if (path / "config.yaml").exists():
            raise ConfigError(f"there is a run at {path} already; continue it with --resume, or choose another --out")

    @classmethod
    def open(cls, path: Path) -> Run:
        """The run at `path`."""
        if not (path / "config.yaml").exists():
            beside = shlex.quote(str(path.parent))
            raise ConfigError(
                f"there is no run at {path} (no config.yaml); `holdfast runs list {beside}` shows those there are"
            )
        return cls(path)

    # ---------------------------------------------------------------------------------------------- reading

    @property
    def config(self) -> dict[str, Any]:
        """What was asked for."""
        return read_mapping(self.path / "config.yaml")

    @property
    def environment(self) -> dict[str, Any]:
        """Kind, versions, machine, command, commit and start."""
        return self._json("environment.json")

    @property
    def kind(self) -> RunKind:
        """What is run."""
        kind = self.environment.get("kind") or _kind_of_older(self.config)
        if kind not in get_args(RunKind):
            raise CheckpointError(
                f"{self.path / 'environment.json'} says that the run is of kind {kind!r:.60}, and there is no such "
                "kind; restore it from a copy of the run"
            )
        return cast(RunKind, kind)

    @property
    def results(self) -> dict[str, Any] | None:
        """The final scores, or None while the run is not finished."""
        return self._json("results.json") if (self.path / "results.json").exists() else None

    @property
    def status(self) -> str:
        """``finished``, ``running`` (a process holds it) or ``interrupted``."""
        if (self.path / "results.json").exists():
            return "finished"
        # The kernel lets a lock go when its process ends, however it ends. So a lock that can be had is nobody's.
        with suppress(OSError), (self.path / ".lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return "running"
        return "interrupted"

    def metrics(self) -> list[dict[str, Any]]:
        """The events so far, oldest first; a half-written last line is left out."""
        return self._metrics.events()

    def predictions(self) -> dict[str, Any]:
        """The chosen model's predictions on the test set: NumPy vectors by column name."""
        return self.table("predictions.parquet", ("id", "label", "predicted", "confidence"))

    def table(self, name: str, columns: Sequence[str]) -> dict[str, Any]:
        """The columns of one of the run's tables, as NumPy vectors.

        Args:
            name: of the file in the run's directory.
            columns: that it must have.

        Raises:
            CheckpointError: if it is missing, damaged, or lacks one of them.
        """
        file = self.path / name
        try:
            table = pq.read_table(file)
            if missing := [column for column in columns if column not in table.column_names]:
                raise ValueError(f"it has no column {missing[0]}")
            return {column: table.column(column).to_numpy() for column in table.column_names}
        # What Arrow raises of a damaged file are errors of its own, an OSError, or whatever a flipped bit leads to.
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
            raise CheckpointError(f"{file} can't be read ({error}); restore it from a copy of the run") from error

    def has_checkpoint(self) -> bool:
        """Whether there is a state to continue from."""
        return (self.path / "checkpoints" / "last.safetensors").exists()

    def load_checkpoint(self, name: str = "last") -> dict[str, Any]:
        """The state saved under `name`."""
        return load_state(self.path / "checkpoints" / f"{name}.safetensors")

    def weights(self) -> dict[str, Any]:
        """The chosen model's state dict, for `load_state_dict`; of a federation, the shared model's.

        Raises:
            CheckpointError: if there are none, because the run is not finished or leaves none, or they are damaged.
        """
        before = self.path / "checkpoints" / "best.safetensors"  # where runs had them until they had the file below
        if not (self.path / _WEIGHTS).exists() and before.exists():
            return dict(load_state(before)["model"])
        return load_weights(self.path / _WEIGHTS)

    def has_weights(self) -> bool:
        """Whether the chosen model's weights are there."""
        return any((self.path / name).exists() for name in (_WEIGHTS, "checkpoints/best.safetensors"))

    @property
    def card(self) -> ModelCard | None:
        """What is known of the chosen model; None of older runs and of unfinished ones."""
        file = self.path / _WEIGHTS
        return ModelCard.from_header(weights_header(file)) if file.exists() else None

    @property
    def spec(self) -> ModelSpec | None:
        """What the model is made from; None of older runs, and where the model came as an object."""
        return ModelSpec.from_json(self._json(_MODEL)) if (self.path / _MODEL).exists() else None

    def _json(self, name: str) -> dict[str, Any]:
        """What a file of plain values holds, by name."""
        file = self.path / name
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{file} can't be read ({error}); restore it from a copy of the run") from error

    # ---------------------------------------------------------------------------------------------- writing

    def lock(self) -> None:
        """Hold the directory for this process until it ends, however it ends, and clear what a killed one left."""
        try:
            # Never through a link, and never emptied: the folder may be somebody else's.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock = os.fdopen(os.open(self.path / ".lock", flags, 0o666), "r+b", buffering=0)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_leftovers(self.path)
        except BlockingIOError as error:
            raise ConfigError(f"another process is writing to the run at {self.path}; wait or stop it") from error
        except OSError as error:
            raise ConfigError(f"the run directory {self.path} can't be written to ({error.strerror})") from error

    def unlock(self) -> None:
        """Let the directory go."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def choice(self) -> dict[str, Any] | None:
        """What ``--method auto`` tried and chose; None of a run whose method was named."""
        return self._json(_CHOICE) if (self.path / _CHOICE).exists() else None

    def keep_choice(self, choice: Mapping[str, Any]) -> None:
        """Keep what was tried and chosen, so that a run that is continued does not choose again."""
        self._write(_CHOICE, json.dumps(dict(choice), indent=1))

    def keep_schema(self, schema: Mapping[str, Any]) -> None:
        """Write down how the data was read; a run that goes on must have read the same data.

        Raises:
            ConfigError: if the data has changed since the run began.
        """
        file, text = self.path / "schema.json", json.dumps(plain_values(schema), indent=1)
        if file.exists() and file.read_bytes() != text.encode():
            raise ConfigError(
                f"the data has changed since the run at {self.path} began, so it can't go on; start a new run"
            )
        self._write(file.name, text)

    def save_checkpoint(self, state: dict[str, Any], name: str = "last") -> None:
        """Save a state atomically."""
        save_state(state, self.path / "checkpoints" / f"{name}.safetensors")

    def metrics_mark(self) -> dict[str, Any]:
        """How far metrics.jsonl has been written, and its digest, for a checkpoint."""
        return self._metrics.mark().to_json()

    def cut_metrics(self, mark: Any = 0) -> None:
        """Forget what was logged after the checkpoint that is being continued.

        Args:
            mark: what `metrics_mark` gave, or the size alone, as older checkpoints have it.
        """
        self._metrics.cut(MetricsMark.of(mark))

    def log(self, event: Event) -> None:
        """Append an event to metrics.jsonl; steps are too many to keep."""
        self._metrics.append(event)

    def save_plan(self, clock: Clock, plan: Plan, examples: Examples) -> None:
        """Save what is trained on from now on, by example id; explicit mini-batches as rows of (batch, id, weight)."""
        columns: dict[str, Any] = {"id": examples.ids.numpy()}
        for name, vector in plan.tensors().items():
            if vector.ndim == 1 and name != "batch_order":
                columns[name] = vector.numpy()
        self._write_table(f"plans/step-{clock.step:08d}.parquet", columns)
        if plan.batches is not None:
            count, size = plan.batches.shape
            weight = torch.ones(count, size) if plan.batch_weight is None else plan.batch_weight
            rows = {
                "batch": torch.arange(count).repeat_interleave(size).numpy(),
                "id": examples.ids[plan.batches].flatten().numpy(),
                "weight": weight.flatten().numpy(),
            }
            self._write_table(f"plans/step-{clock.step:08d}.batches.parquet", rows)

    def save_predictions(self, predictions: Predictions, examples: Examples) -> None:
        """Save predictions by example id."""
        columns: dict[str, Any] = {
            "id": examples.ids.numpy(),
            "label": examples.labels.numpy(),
            "predicted": predictions.predicted.numpy(),
            "confidence": predictions.confidence.numpy(),
        }
        if examples.groups is not None:
            columns["group"] = examples.groups.numpy()
        self._write_table("predictions.parquet", columns)

    def save_report(self, report: GroupReport, part: str) -> None:
        """Save the tables of a report on so many groups that its record has not all of them."""
        if report.fold() is not report:
            for name, columns in tables_of(report, part).items():
                self._write_table(name, columns)

    def save_spec(self, spec: ModelSpec) -> None:
        """Write down what the model is made from, so that it can be built again without the program that made it."""
        self._write(_MODEL, json.dumps(spec.to_json(), indent=2))

    def save_weights(self, state: Mapping[str, Any], card: ModelCard) -> None:
        """Save the chosen model's state dict atomically, with what is known of it in the header."""
        save_weights(state, self.path / _WEIGHTS, card.to_header())

    def save_results(self, results: Mapping[str, Any]) -> None:
        """Write the final scores, and what ``--method auto`` chose, which marks the run as finished."""
        chosen = {} if self.choice is None else {"choice": self.choice}
        self._write("results.json", json.dumps(plain_values({**results, **chosen}), indent=2))

    def _write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        with suppress(OSError):  # a folder that was empty is lost where a run travels through git or a bucket
            (self.path / name).parent.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        pq.write_table(pa.table(dict(columns)), buffer)
        write_atomically(self.path / name, buffer.getvalue())

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text.encode())


@contextmanager
def understanding(path: Path, or_else: str = "") -> Iterator[None]:
    """Tell that a run's files say what no run writes, where making sense of them fails.

    Files are checked as they are read; what they say of each other, and of the data, shows when it is used.

    Args:
        path: of the run.
        or_else: what else may be the reason, as the rest of a sentence.

    Raises:
        CheckpointError: instead of what a value of another type, size or range leads to.
    """
    try:
        yield
    except HoldfastError:
        raise
    except torch.OutOfMemoryError:
        raise
    except _NONSENSE as error:
        raise CheckpointError(
            f"the files of the run at {path} hold what no run writes{or_else} ({type(error).__name__}: {error}); "
            "restore them from a copy"
        ) from error


def _kind_of_older(config: Mapping[str, Any]) -> RunKind:
    """The kind of a run made before runs said their kind: what only such a run has in its configuration."""
    if "aggregate" in config:
        return "federation"
    if {"budget", "clusters", "by_source"} <= config.keys():
        return "selection"
    return "clip" if config.get("task") == "clip" else "fit"


def _occasion() -> dict[str, Any]:
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"commit": git_commit(), "command": sys.argv, "started": started}
