"""Whose a client is, and what is known of it: decided by the roster, remembered with the run.

A node proves who it is by its key or its token (`holdfast.integrations.flower.roster`) and gets the clients that the
roster gives it. Without a roster a client belongs to whoever names it first. Either way the owner is written down in
the run directory, so that after a restart of the server nobody else can take a client over, and its data can't have
become other data.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from holdfast.errors import CheckpointError, ConfigError
from holdfast.files import write_atomically
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.wire import head_of, sentence, shown, whole, wholes, word
from holdfast.integrations.flower.roster import MOST_CLIENTS, MOST_EXAMPLES, Roster, RosterNode, spelled

_PARTS = ("train", "validation", "test")
_SECRET_LETTERS, _DIMENSIONS, _SIDE = 200, 8, 10**6
_FILE = "members.json"


@dataclass(frozen=True)
class ClientFacts:
    """What a client says of itself.

    Attributes:
        train: number of training examples.
        validation: of validation examples.
        test: of test examples.
    """

    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class DataKind:
    """What data is, where no charter says it: the first node that is admitted does.

    Attributes:
        classes: in the data.
        task: how outputs are scored.
        shape: of an input.
    """

    classes: int
    task: str
    shape: tuple[int, ...]


@dataclass
class Members:
    """Owners and facts of clients.

    Attributes:
        roster: who may take part; None takes every node at its word.
        charter: what the federation owns, where that is written down.
        most_faults: a node or a client whose replies were refused so often is left out from then on.
        facts: what each client has said of itself.
        owners: the name of each client's node.
        kind: what the data is.
    """

    roster: Roster | None = None
    charter: Charter | None = None
    most_faults: int = 10
    facts: dict[int, ClientFacts] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    kind: DataKind | None = None
    _strikes: Counter[str] = field(default_factory=Counter)
    _folder: Path | None = None

    def __post_init__(self) -> None:
        if self.charter is not None:
            self.kind = DataKind(self.charter.classes, self.charter.task, self.charter.input_shape)

    # ---------------------------------------------------------------------------------------------- admission

    def identify(self, content: RecordDict, key: bytes) -> tuple[str, RosterNode | None]:
        """The name of the node that sent an answer, and its place on the roster.

        Raises:
            RejectedError: if it has none.
        """
        secret = word(head_of(content), "identity")[:_SECRET_LETTERS]
        if self.roster is None:
            return f"node {hashlib.sha256(secret.encode()).hexdigest()[:16]}", None
        listed = self.roster.of_key(key) or self.roster.of_secret(secret)
        if listed is None:
            raise RejectedError("it is not on the roster")
        return listed.name, listed

    def admit(self, name: str, listed: RosterNode | None, content: RecordDict) -> tuple[list[int], list[str]]:
        """Take in whom a node hosts.

        Args:
            name: of the node.
            listed: its place on the roster, where there is one.
            content: of its answer.

        Returns:
            The clients that it may answer for, and a sentence about each thing that was refused.

        Raises:
            RejectedError: if nothing of it can be used.
        """
        head = head_of(content)
        if "refusal" in head:
            raise RejectedError(f"it does not join: {sentence(word(head, 'refusal'))}")
        ids, counts = _claims(head)
        self._check_kind(head)
        mine, refused = self._own(name, listed, ids)
        for client, *numbers in zip(ids, *counts, strict=True):
            if client not in mine:
                continue
            facts = ClientFacts(*numbers)
            if self.facts.setdefault(client, facts) != facts:
                mine.remove(client)
                refused.append(f"client {client} came back with other data; start a new federation")
            elif (cap := self.cap(client)) < facts.train:
                refused.append(f"client {client} claims {facts.train:,} examples and counts for {cap:,} at most")
        self.owners |= dict.fromkeys(mine, name)
        self.save()
        return sorted(mine), refused

    def _own(self, name: str, listed: RosterNode | None, ids: Sequence[int]) -> tuple[set[int], list[str]]:
        """Those of the claimed clients that belong to the node."""
        theirs = [client for client in ids if self.owners.get(client, name) != name]
        if listed is not None:
            own = set(listed.clients)
            theirs = [client for client in ids if client not in own]
        shown = spelled(theirs[:50])[:60]
        refused = (
            [f"it claims {len(theirs):,} clients of others ({shown}), which are not given to it"] if theirs else []
        )
        return set(ids) - set(theirs), refused

    def _check_kind(self, head: Any) -> None:
        if self.charter is not None and (followed := head.get("charter")) != self.charter.digest:
            raise RejectedError(
                f"it follows the charter {shown(followed, 18)} and the federation has {self.charter.digest[:16]!r}; "
                "give it the same app"
            )
        kind = DataKind(whole(head, "classes"), word(head, "task"), tuple(wholes(head, "shape")))
        possible = all(1 <= side <= _SIDE for side in (*kind.shape, kind.classes)) and len(kind.shape) <= _DIMENSIONS
        if not possible or kind.task not in ("classes", "margin"):
            raise RejectedError("it describes data that can't be")
        if self.kind is None:
            self.kind = kind
        elif kind != self.kind:
            raise RejectedError(
                f"its data is {kind.shape} with {kind.classes} classes and the federation's {self.kind.shape} with "
                f"{self.kind.classes}"
            )

    def cap(self, client: int) -> int:
        """The most examples that a client counts for."""
        return MOST_EXAMPLES if self.roster is None else self.roster.host(client).most_examples

    # ---------------------------------------------------------------------------------------------- faults

    def strike(self, who: str) -> bool:
        """Count a refused reply of a node or a client; whether it was one too many, and is left out from now on."""
        self._strikes[who] += 1
        if self._strikes[who] == self.most_faults:
            self.save()
            return True
        return False

    def is_expelled(self, who: str) -> bool:
        """Whether a node or a client is left out."""
        return self._strikes[who] >= self.most_faults

    def expel(self, who: str) -> None:
        """Leave a node or a client out from now on."""
        self._strikes[who] = max(self._strikes[who], self.most_faults)
        self.save()

    # ---------------------------------------------------------------------------------------------- on disk

    def keep_in(self, folder: Path) -> None:
        """Go on with what the run directory remembers, and keep it there from now on.

        Raises:
            ConfigError: if the roster gives a client to another node than the run had it from.
            CheckpointError: if the file is damaged.
        """
        self._folder = folder
        if not (folder / _FILE).exists():
            return
        try:
            saved = json.loads((folder / _FILE).read_text())
            clients = {int(client): each for client, each in saved["clients"].items()}
            self.facts = {
                client: ClientFacts(*(int(each[part]) for part in _PARTS)) for client, each in clients.items()
            }
            self.owners = {client: str(each["owner"]) for client, each in clients.items()}
            self._strikes = Counter({str(who): int(count) for who, count in saved["strikes"].items()})
            if self.kind is None and saved["kind"] is not None:
                self.kind = DataKind(saved["kind"]["classes"], saved["kind"]["task"], tuple(saved["kind"]["shape"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{folder / _FILE} is damaged ({error}); it records which node each client belongs to"
            ) from error
        if self.roster is not None:
            self._check_owners(self.roster)

    def _check_owners(self, roster: Roster) -> None:
        for client, owner in sorted(self.owners.items()):
            now = roster.host(client).name if client < len(roster) else "nobody"
            if now != owner:
                raise ConfigError(
                    f"client {client} belonged to {owner!r} when the run was started and the roster gives it to "
                    f"{now!r}; personal models stay at their node, so give the roster as it was, or start a new run"
                )

    def save(self) -> None:
        """Write the file, if there is a place for it."""
        if self._folder is None:
            return
        clients = {
            str(client): {**asdict(facts), "owner": self.owners[client]}
            for client, facts in sorted(self.facts.items())
            if client in self.owners
        }
        kind = None if self.kind is None else asdict(self.kind)
        content = {"clients": clients, "strikes": dict(self._strikes), "kind": kind}
        write_atomically(self._folder / _FILE, json.dumps(content).encode())


def _claims(head: Any) -> tuple[list[int], list[list[int]]]:
    """Ids and numbers of examples that a node claims."""
    ids = wholes(head, "clients")
    if len(ids) > MOST_CLIENTS or len(set(ids)) < len(ids) or any(not 0 <= one < MOST_CLIENTS for one in ids):
        raise RejectedError(f"it claims {len(ids):,} clients that can't be; ids differ and go from 0 to a million")
    counts = [wholes(head, part, len(ids)) for part in _PARTS]
    if any(not 0 <= count <= MOST_EXAMPLES for part in counts for count in part) or any(n < 1 for n in counts[0]):
        raise RejectedError("it claims numbers of examples that can't be")
    return ids, counts
