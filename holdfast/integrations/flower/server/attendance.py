"""Which nodes are there, and which of them has which client now.

Nodes come and go. Who is new is asked whom it hosts (a census), and again where the answer is lost. A node that was
killed and started again is another one for Flower where nodes need no key; where they do it keeps its id, and the
moment of its activation tells that it has forgotten what it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: Seconds after which a node that has not said whom it has is asked again, twice as many every time; how often it may
#: fail before nobody waits for it.
_AGAIN, _FAILURES = 5.0, 3


@dataclass(frozen=True)
class Sighting:
    """A node as the SuperLink knows it.

    Attributes:
        id: Flower's, drawn when the node was registered.
        since: when it came, as the SuperLink writes it; empty where nobody says.
        key: its public key, which it has proved to have where the SuperLink authenticates nodes.
    """

    id: int
    since: str = ""
    key: bytes = b""


@dataclass
class Census:
    """What became of asking a node whom it hosts."""

    seen: Sighting
    attempts: int = 0
    failed: int = 0
    due: float = 0.0
    answered: bool = False
    turned_away: bool = False
    name: str = ""

    def put_off(self, now: float) -> None:
        """Not before some seconds have passed, for a node may be slow; and ever more rarely, for it may be broken."""
        self.due = now + _AGAIN * 2**self.attempts
        self.attempts += 1

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask; a broken node is asked ever more rarely and never given up."""
        return not self.answered and not self.turned_away and self.due <= now

    @property
    def is_hopeless(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.turned_away or (not self.answered and self.failed >= _FAILURES)

    @property
    def is_open(self) -> bool:
        """Whether it may still say whom it hosts."""
        return not self.answered and not self.turned_away and self.failed < _FAILURES


@dataclass
class Attendance:
    """Which nodes are there.

    Attributes:
        grid: of the run.
        censuses: by node.
        holder: the node that has each client now.
    """

    grid: Any
    censuses: dict[int, Census] = field(default_factory=dict)
    holder: dict[int, int] = field(default_factory=dict)
    _last: dict[int, Sighting] = field(default_factory=dict)

    def look(self, now: float) -> set[int]:
        """See who is there; return the nodes that are gone, or have forgotten what they were asked.

        One that has just been asked and comes back is not asked at once: it may come and go all day.
        """
        here = {seen.id: seen for seen in sightings(self.grid)}
        before = self.censuses
        stayed = {node for node, census in before.items() if here.get(node) == census.seen}
        fresh = {
            node: Census(seen, due=min(before[node].due, now + _AGAIN) if node in before else 0.0)
            for node, seen in sorted(here.items())
        }
        self.censuses = {node: before[node] if node in stayed else census for node, census in fresh.items()}
        self.holder = {client: node for client, node in self.holder.items() if node in stayed}
        return set(before) - stayed

    def due(self, now: float) -> list[int]:
        """Nodes that are to be asked whom they host."""
        due = [node for node, census in self.censuses.items() if census.is_due(now)]
        for node in due:
            self.censuses[node].put_off(now)
        return due

    def seat(self, node: int, clients: Iterable[int]) -> list[int]:
        """A node has these clients; return those that another one had, which was lost."""
        seen = self.censuses[node].seen
        back = [client for client in clients if self._last.get(client, seen) != seen]
        for client in clients:
            self.holder[client], self._last[client] = node, seen
        return back

    def unseat(self, clients: Iterable[int]) -> None:
        """Nobody has these clients any more."""
        for client in clients:
            self.holder.pop(client, None)

    def doubt(self, node: int) -> list[int]:
        """A node may be away: it has nobody until it has said again whom it hosts; return whom it had."""
        theirs = sorted(client for client, holder in self.holder.items() if holder == node)
        self.unseat(theirs)
        if theirs:
            self.censuses[node].answered = False
        return theirs

    def name(self, node: int) -> str:
        """How messages call a node."""
        census = self.censuses.get(node)
        return census.name if census is not None and census.name else f"node {node}"


def sightings(grid: Any) -> list[Sighting]:
    """The nodes of a Grid, with keys where it tells them."""
    if not hasattr(grid, "get_nodes"):
        return [Sighting(node) for node in grid.get_node_ids()]
    return [Sighting(node.node_id, node.last_activated_at, bytes(node.public_key)) for node in grid.get_nodes()]
