"""What a client of somebody's own Flower project remembers of its personal model, on its own disk.

A file per run and client: Flower keeps `Context.state` in memory and loses it with the node, and two runs are two
federations. It is written whole or not at all, and only its owner may read it. Nothing in it is ever sent.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from holdfast.errors import CheckpointError, ConfigError, DataError
from holdfast.files import write_atomically
from holdfast.integrations.flower.operation.private import private_files, private_folder
from holdfast.training.state import load_state, save_state


@dataclass(frozen=True, eq=False)
class PersonalState:
    """What is kept.

    Attributes:
        method: label of the method whose model it is.
        rows: what each method keeps, by label, shape (width,).
        rest: the module's buffers that are in no row.
        optimizers: what the optimizers remember, by the model they move.
        drawn: mini-batches that were drawn.
        rounds: that the client trained in.
        seen: Flower's run, the kind of message and the round that came last: one that comes twice is one round.
        before: all of that before the last round, for a method whose answer must be given again; empty for others.
        model: the personal model as a state dict.
    """

    method: str
    rows: dict[str, Tensor] = field(default_factory=dict)
    rest: dict[str, Tensor] = field(default_factory=dict)
    optimizers: dict[str, Any] = field(default_factory=dict)
    drawn: int = 0
    rounds: int = 0
    seen: list[Any] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Tensor] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As `save_state` takes it."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_repeat(self) -> dict[str, Any]:
        """What the next round must start from, should it be asked for twice."""
        return replace(self, before={}, model={}).plain()


class PersonalFolder:
    """The personal models of one run in a folder.

    Args:
        folder: of the mod.
        run: name of the run.

    Raises:
        ConfigError: if the run's name is none for a folder.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder / _file_name(run, "the run")

    def load(self, client: object) -> PersonalState | None:
        """What a client remembers; None if it has not trained in this run.

        Raises:
            CheckpointError: if the file is damaged or of something else.
        """
        file = self.file(client)
        return _read(file) if file.exists() else None

    def save(self, client: object, state: PersonalState) -> None:
        """Remember it."""
        with private_files():
            save_state(state.plain(), self.file(client))

    @contextlib.contextmanager
    def held(self, client: object) -> Iterator[None]:
        """Keep other processes away from a client: two of them would each train from the same state."""
        private_folder(self.folder.parent)
        private_folder(self.folder)
        lock = self.folder / f".{_file_name(client, 'the client')}.lock"
        with private_files():
            file = lock.open("w")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def file(self, client: object) -> Path:
        """Where a client's state is.

        Raises:
            ConfigError: if the client's name is none for a file.
        """
        return self.folder / f"{_file_name(client, 'the client')}.safetensors"


def personal_models(folder: Path) -> dict[str, dict[str, Path]]:
    """The files in a mod's folder, by run and client."""
    found: dict[str, dict[str, Path]] = {}
    for file in sorted(folder.glob("*/*.safetensors")):
        found.setdefault(file.parent.name, {})[file.stem] = file
    return found


def load_personal(folder: Path, client: object, run: str | None = None) -> PersonalState:
    """A client's state in a mod's folder.

    Args:
        folder: of the mod.
        client: the client's name, its ``partition-id``.
        run: which run, where there are several.

    Raises:
        DataError: if the client has no personal model there, or it is not said in which run.
        CheckpointError: if it can't be read.
    """
    name = _file_name(client, "the client")
    runs = {key: files for key, files in personal_models(folder).items() if run in (None, key)}
    with_it = sorted(key for key, files in runs.items() if name in files)
    if not with_it:
        there = sorted({other for files in runs.values() for other in files})
        known = f"it has {', '.join(there[:20])}" if there else "nobody has trained there yet"
        of_run = "" if run is None else f" of run {run}"
        raise DataError(f"{folder} has no personal model{of_run} of client {client}; {known}")
    if len(with_it) > 1:
        raise DataError(f"client {client} has personal models of the runs {', '.join(with_it)}; say which with run")
    return _read(runs[with_it[0]][name])


def export_personal(folder: Path, client: object, file: Path, run: str | None = None) -> None:
    """Write a client's personal model as a plain safetensors file, to be loaded by `safetensors.torch.load_file`.

    Args:
        folder: of the mod.
        client: the client's name, its ``partition-id``.
        file: what to write.
        run: which run, where there are several.

    Raises:
        DataError: if the client has no personal model there, or it is not said in which run.
        CheckpointError: if it can't be read, or the file can't be written.
    """
    state = load_personal(folder, client, run)
    plain = {name: value.contiguous().clone() for name, value in state.model.items()}
    with private_files():
        write_atomically(file, save(plain))


def _read(file: Path) -> PersonalState:
    stored = load_state(file)
    try:
        return PersonalState(**stored)
    except TypeError as error:
        raise CheckpointError(f"{file} isn't a personal model ({error}); give the folder of a PersonalMod") from error


def _file_name(name: object, what: str) -> str:
    text = str(name)
    if not re.fullmatch(r"[\w-]+", text):
        raise ConfigError(f"{what} is named {text!r}, which can't be a file's name; use letters, digits, _ and -")
    return text
