"""What a client remembers, on its node's disk: personal models and how many batches it has drawn. It is never sent.

After each round that a client takes part in there is a new file, written whole or not at all; the file of the round
before stays. So whenever a node is killed, a client's last finished round is there. And a round that is asked for a
second time, because the server was restarted before it could save the answer, starts from where it started first:
a personal model is never trained twice on one round.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from holdfast.errors import FederationError
from holdfast.integrations.flower.operation.private import private_files, private_folder
from holdfast.training.state import load_state, save_state

_NAME = re.compile(r"after-(\d{8})\.safetensors")


@dataclass(frozen=True, eq=False)
class ClientMemory:
    """What a client remembers after a round.

    Attributes:
        rows: of each personalization method by label, shape (width,).
        drawn: batches that the client has drawn.
    """

    rows: dict[str, Tensor]
    drawn: int = 0


class ClientStates:
    """The clients' states of one federation in a folder; made where it is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = private_folder(folder)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes of this node away."""
        with (self.folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def rounds(self, client: int) -> list[int]:
        """The rounds after which there is a state, ascending."""
        matches = (_NAME.fullmatch(path.name) for path in self._of(client).glob("after-*"))
        return sorted(int(match[1]) for match in matches if match)

    def before(self, client: int, number: int) -> ClientMemory | None:
        """What a client remembered before round `number`; None if that is its first.

        Raises:
            FederationError: if the client is past that round: the request is stale.
        """
        rounds = self.rounds(client)
        if rounds and rounds[-1] > number:
            raise FederationError(f"client {client} has finished round {rounds[-1] + 1}; round {number + 1} is stale")
        earlier = [each for each in rounds if each < number]
        return self._load(client, earlier[-1]) if earlier else None

    def last(self, client: int) -> ClientMemory | None:
        """What a client remembers now; None if it never took part."""
        rounds = self.rounds(client)
        return self._load(client, rounds[-1]) if rounds else None

    def keep(self, client: int, number: int, state: ClientMemory) -> None:
        """Remember the state after round `number`, and the one before it."""
        folder = private_folder(self._of(client))
        with private_files():
            save_state({"rows": dict(state.rows), "drawn": state.drawn}, self._file(client, number))
        for old in self.rounds(client)[:-2]:
            self._file(client, old).unlink(missing_ok=True)
        for part in folder.glob(".*.part"):
            part.unlink(missing_ok=True)

    def _load(self, client: int, number: int) -> ClientMemory:
        saved = load_state(self._file(client, number))
        return ClientMemory(saved["rows"], saved["drawn"])

    def _of(self, client: int) -> Path:
        return self.folder / f"client-{client:07d}"

    def _file(self, client: int, number: int) -> Path:
        return self._of(client) / f"after-{number:08d}.safetensors"
