"""How a federation on Flower is run: how many nodes, how long to wait, what to do when few answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from holdfast.errors import ConfigError

#: What happens to a round that fewer clients than the minimum have answered in time.
OnFew = Literal["continue", "wait", "fail"]
#: What happens to a reply that comes when its round is over.
Late = Literal["drop", "weigh"]


@dataclass(frozen=True)
class FlowerSettings:
    """How a federation on Flower is run.

    Attributes:
        nodes: SuperNodes; clients are dealt out to them evenly. The first round waits for all of them.
        timeout: seconds that clients have to answer.
        join_timeout: seconds that nodes have to appear before the first round; as long as clients to answer by default.
        minimum: clients of a round that should answer.
        on_few: what to do when fewer than the minimum have answered in time: combine those that have (continue), go on
            waiting (wait), or stop with everything saved (fail).
        late: replies to an earlier round: leave them out (drop), or use them with less weight (weigh); a reply that is
            s rounds late counts (1 + s)^(-1/2).
        late_rounds: how many rounds a reply may be late and still count, for late replies that are weighed.
        roster: a file that says which nodes may take part, with which clients and how many examples at most.
        unlisted: without a roster, take every node at its word; where all nodes that can reach the SuperLink are yours.
        expect_malicious_nodes: how many nodes the server defends itself against, with all of their clients; needs a
            roster, which knows who shares a node.
        most_faults: a node whose replies were refused this often is left out from then on.
    """

    nodes: int = 2
    timeout: float = 300.0
    join_timeout: float | None = None
    minimum: int = 1
    on_few: OnFew = "continue"
    late: Late = "drop"
    late_rounds: int = 5
    roster: str | None = None
    unlisted: bool = False
    expect_malicious_nodes: int | None = None
    most_faults: int = 10

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ConfigError(f"nodes is {self.nodes}; give at least 1")
        for name in ("timeout", "join_timeout"):
            if (seconds := getattr(self, name)) is not None and not seconds > 0:
                raise ConfigError(f"{name} is {seconds}; give a positive number of seconds")
        for name in ("minimum", "most_faults", "late_rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.expect_malicious_nodes is not None and self.expect_malicious_nodes < 0:
            raise ConfigError(f"expect_malicious_nodes is {self.expect_malicious_nodes}; give 0 or a number of nodes")
        if self.roster is not None and self.unlisted:
            raise ConfigError("a roster says who may take part, and unlisted that anybody may; give one of them")


@dataclass(frozen=True)
class Fault:
    """Something that kept clients out of a round, or could have.

    Attributes:
        number: of the round, from 0.
        clients: ids.
        kind: ``away`` (no node has them), ``silent`` (no answer in time), ``failed`` (the node said why), ``refused``
            (what came is not what was asked for), ``busy`` (their node was still at work on an earlier round),
            ``late`` (an answer came when its round was over), ``expelled`` (too much of theirs was refused),
            ``skipped`` (too few were left to combine), ``returned`` (their node was lost and is back; they may have
            been in time), or ``lost`` (their order or its reply was, on the way; they are asked again).
        reason: a sentence.
        node: its name on the roster, where the fault is of the node as a whole: it never came to have clients here.
    """

    number: int
    clients: tuple[int, ...]
    kind: Literal["away", "silent", "failed", "refused", "busy", "late", "expelled", "skipped", "returned", "lost"]
    reason: str
    node: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with the round counted from 1 as in every report."""
        told = {"round": self.number + 1, "clients": list(self.clients), "kind": self.kind, "reason": self.reason}
        return told | ({"node": self.node} if self.node else {})
