"""Who may take part: a file that gives every node its key, its clients and the most examples they may claim.

Without it a node's word is all that a server has, and a node can claim any number of clients or those of another. With
it a node is known by what it can prove, and everything else is refused. Two proofs:

``key``
    The node's public key. A SuperLink with node authentication lets a node speak only if it signs with the private
    half, and tells the ServerApp the key beside Flower's node id (`Grid.get_nodes`). Node ids are drawn anew whenever a
    node is registered, so the roster does not name them: it stays true when the SuperLink's database is lost.
``token``
    The SHA-256 of a secret that the node keeps in its ``state`` folder and sends when it is asked whom it hosts. For
    rehearsals, whose SuperLink authenticates nobody, and for Flower's own simulation.

The file is JSON, or YAML where its name ends so::

    {"format": "holdfast-roster-1", "most_examples": 5000, "nodes": [
        {"name": "north", "key": "ecdsa-sha2-nistp384 AAAA...", "clients": "0-3"},
        {"name": "south", "key": "ecdsa-sha2-nistp384 AAAA...", "clients": 2, "most_examples": 800}]}

A number of clients gives the node the lowest ids that nobody else has, in the order of the file. A node that was
dismissed has ``"dismissed": true`` and no proof: it keeps its place and its ids, and is let in no more.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.files import read_yaml, write_atomically
from holdfast.integrations.flower.nodes.ids import parse_ids

FORMAT = "holdfast-roster-1"
#: Bounds of a file: its bytes, its nodes, its clients, examples per client.
_MOST_BYTES, _MOST_NODES, MOST_CLIENTS, MOST_EXAMPLES = 64 * 2**20, 10**5, 10**6, 2**40
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEYS = {"name", "key", "token", "clients", "most_examples", "dismissed"}


@dataclass(frozen=True)
class RosterNode:
    """A node that may take part.

    Attributes:
        name: for people; logs and reports call the node so.
        clients: ids that it hosts, ascending.
        most_examples: the most examples that one of its clients counts for.
        key: its public key as OpenSSH writes it or as PEM, empty where it has a token.
        token: SHA-256 of its secret, 64 hexadecimal digits, empty where it has a key. Without both it was dismissed.
    """

    name: str
    clients: tuple[int, ...]
    most_examples: int
    key: str = ""
    token: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """Of its public key."""
        return key_fingerprint(self.key.encode())

    @property
    def is_dismissed(self) -> bool:
        """Whether it may take part no more."""
        return not self.key and not self.token

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as the file has them."""
        proof: dict[str, Any] = {"key": self.key} if self.key else {"token": self.token}
        if self.is_dismissed:
            proof = {"dismissed": True}
        return {"name": self.name, **proof, "clients": spelled(self.clients), "most_examples": self.most_examples}


class Roster:
    """The nodes that may take part.

    Args:
        nodes: each with its clients.

    Raises:
        ConfigError: if two nodes share a name, a key or a client, or ids leave a gap.
    """

    def __init__(self, nodes: Sequence[RosterNode]) -> None:
        self.nodes = tuple(nodes)
        if not self.nodes:
            raise ConfigError("the roster names no node; add one, with its key and its clients")
        _refuse_twice("name", (node.name for node in self.nodes))
        _refuse_twice("key", (node.fingerprint for node in self.nodes if node.key))
        _refuse_twice("token", (node.token for node in self.nodes if node.token))
        _refuse_twice("client", (client for node in self.nodes for client in node.clients))
        self._hosts = {client: node for node in self.nodes for client in node.clients}
        missing = next((client for client in range(len(self)) if client not in self._hosts), None)
        if missing is not None:
            raise ConfigError(f"nobody on the roster hosts client {missing}; ids go from 0 on without a gap")
        self._by_key = {node.fingerprint: node for node in self.nodes if node.key}

    def __len__(self) -> int:
        """How many clients there are."""
        return len(self._hosts)

    def host(self, client: int) -> RosterNode:
        """The node that hosts a client."""
        return self._hosts[client]

    def of_key(self, public_key: bytes) -> RosterNode | None:
        """The node with this public key, as Flower tells it; None if it is not on the roster."""
        try:
            return self._by_key.get(key_fingerprint(public_key))
        except ConfigError:
            return None

    def of_secret(self, secret: str) -> RosterNode | None:
        """The node whose token is that of this secret; None if there is none."""
        token = token_of(secret)
        return next((node for node in self.nodes if node.token and hmac.compare_digest(node.token, token)), None)

    @cached_property
    def present(self) -> tuple[RosterNode, ...]:
        """Those that were not dismissed."""
        return tuple(node for node in self.nodes if not node.is_dismissed)

    @property
    def has_tokens(self) -> bool:
        """Whether a node may prove who it is by a secret that it sends."""
        return any(node.token for node in self.nodes)

    def largest(self, nodes: int) -> int:
        """How many clients so many nodes host, at most: what they can send if all of them are malicious."""
        return sum(sorted((len(node.clients) for node in self.present), reverse=True)[:nodes])

    # ---------------------------------------------------------------------------------------------- files

    def save(self, path: Path) -> None:
        """Write the file."""
        content = {"format": FORMAT, "nodes": [node.as_dict() for node in self.nodes]}
        write_atomically(path, json.dumps(content, indent=1).encode())

    @classmethod
    def load(cls, path: Path | str) -> Roster:
        """Read a roster file.

        Raises:
            ConfigError: if it can't be read, or something in it can't be; the sentence names the node.
        """
        return cls.from_plain(_read(Path(path)), str(path))

    @classmethod
    def from_plain(cls, content: Any, where: str = "the roster") -> Roster:
        """The roster in plain values.

        Raises:
            ConfigError: if something in it can't be.
        """
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ConfigError(f"{where} isn't a roster; it must begin with format: {FORMAT} and a list of nodes")
        entries = content.get("nodes")
        if not isinstance(entries, list) or not entries or len(entries) > _MOST_NODES:
            raise ConfigError(f"{where} must have a list of 1 to {_MOST_NODES:,} nodes")
        if odd := set(content) - {"format", "nodes", "most_examples"}:
            raise ConfigError(f"{where} has {sorted(map(str, odd))[0]!r:.60}, which a roster does not know")
        counts = [_Entry.of(entry, content.get("most_examples"), f"{where}, node {number + 1}")
                  for number, entry in enumerate(entries)]  # fmt: skip
        try:
            return cls(_seated(counts))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error


@dataclass(frozen=True)
class _Entry:
    """What the file says of a node: the ids of its clients, or how many there are."""

    name: str
    key: str
    token: str
    ids: tuple[int, ...] | None
    number: int
    most_examples: int

    @classmethod
    def of(cls, entry: Any, most: Any, where: str) -> _Entry:
        if not isinstance(entry, dict):
            raise ConfigError(f"{where} isn't a mapping; write name, key, clients and most_examples")
        if odd := {str(key) for key in entry} - _KEYS:
            raise ConfigError(f"{where} has {min(odd)!r:.60}, which a roster does not know")
        name = entry.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"{where} has the name {name!r:.60}; write 1 to 64 letters, digits, dots, dashes")
        where = f"{where} ({name})"
        key, token = entry.get("key", ""), entry.get("token", "")
        proofs = [bool(key), bool(token), entry.get("dismissed") is True]
        if not isinstance(key, str) or not isinstance(token, str) or sum(proofs) != 1:
            raise ConfigError(f"{where} must have a key (the text of its .pub file), or else a token")
        if token and not _DIGEST.fullmatch(token):
            raise ConfigError(f"{where} has a token that is no SHA-256; write 64 hexadecimal digits")
        if key:
            _told(where, key)
        ids, number = _clients_of(entry.get("clients"), where)
        examples = entry.get("most_examples", most)
        if not _is_whole(examples) or not 1 <= examples <= MOST_EXAMPLES:
            raise ConfigError(f"{where} has {examples!r:.40} as most_examples; say what a client may claim at most")
        return cls(name, key, token, ids, number, examples)


def _clients_of(value: Any, where: str) -> tuple[tuple[int, ...] | None, int]:
    if isinstance(value, str):
        ids = tuple(parse_ids(value))
    elif isinstance(value, list) and value and all(_is_whole(item) for item in value):
        ids = tuple(sorted(value))
    elif _is_whole(value) and 1 <= value <= MOST_CLIENTS:
        return None, value
    else:
        raise ConfigError(f'{where} has {value!r:.40} as clients; write ids such as "0-3,7", or how many there are')
    if not 0 <= ids[0] <= ids[-1] < MOST_CLIENTS or len(set(ids)) < len(ids):
        raise ConfigError(f"{where} has clients {value!r:.40}; ids differ and go from 0 to below {MOST_CLIENTS:,}")
    return ids, len(ids)


def _seated(entries: Iterable[_Entry]) -> list[RosterNode]:
    """Nodes with the ids that the file gives them, and with the lowest free ones where it gives a number."""
    known = list(entries)
    if sum(entry.number for entry in known) > MOST_CLIENTS:
        raise ConfigError(f"it has more than {MOST_CLIENTS:,} clients in all; no server holds that many")
    taken = {client for entry in known for client in entry.ids or ()}
    free = (client for client in range(MOST_CLIENTS + len(taken)) if client not in taken)
    return [
        RosterNode(
            entry.name,
            entry.ids if entry.ids is not None else tuple(next(free) for _ in range(entry.number)),
            entry.most_examples,
            entry.key,
            entry.token,
        )
        for entry in known
    ]


def key_fingerprint(key: bytes) -> str:
    """SHA-256 of a public key, however it is written: PEM, as Flower keeps it, or the line of a ``.pub`` file.

    Raises:
        ConfigError: if it isn't a public key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    text = key.strip()
    read = serialization.load_pem_public_key if text.startswith(b"-----") else serialization.load_ssh_public_key
    try:
        public = read(text)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{text[:40]!r} isn't a public key; give the text of the node's .pub file") from error
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(public.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def token_of(secret: str) -> str:
    """What a roster keeps of a node's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def spelled(ids: Sequence[int]) -> str:
    """Ids as an administrator writes them: ``"0-3,7"``; the inverse of `parse_ids`."""
    runs: list[tuple[int, int]] = []
    for each in sorted(ids):
        if runs and each == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], each)
        else:
            runs.append((each, each))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def even_roster(tokens: Sequence[str], counts: Sequence[int], most_examples: int) -> Roster:
    """The roster of a rehearsal: nodes known by tokens, with so many clients each, one after another."""
    starts = [sum(counts[:number]) for number in range(len(counts))]
    return Roster(
        [
            RosterNode(f"node-{number}", tuple(range(start, start + count)), most_examples, token=token)
            for number, (token, start, count) in enumerate(zip(tokens, starts, counts, strict=True))
        ]
    )


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"the roster {path} has more than {_MOST_BYTES:,} bytes; that isn't a roster")
        return json.loads(path.read_text("utf-8")) if path.suffix == ".json" else read_yaml(path)
    except OSError as error:
        raise ConfigError(f"the roster {path} can't be read ({error.strerror}); check its name") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"the roster {path} isn't valid JSON: {error}") from error


def _told(where: str, key: str) -> None:
    try:
        key_fingerprint(key.encode())
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse_twice(what: str, values: Iterable[object]) -> None:
    value, times = Counter(values).most_common(1)[0] if (values := list(values)) else ("", 0)
    if times > 1:
        raise ConfigError(f"the {what} {value!r:.80} is on the roster {times} times; name it once")
