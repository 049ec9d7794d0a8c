"""How a federation on Flower is run: how many nodes, how long to wait, what to do when few answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from holdfast.errors import ConfigError

#: What happens to a round that fewer clients than the minimum have answered in time.
OnFew = Literal["continue", "wait", "fail"]


@dataclass(frozen=True)
class FlowerSettings:
    """How a federation on Flower is run.

    Attributes:
        nodes: SuperNodes; clients are dealt out to them evenly. The first round waits for all of them.
        timeout: seconds that clients have to answer, and nodes to appear.
        minimum: clients of a round that should answer.
        on_few: what to do when fewer than the minimum have answered in time: combine those that have (continue), go on
            waiting (wait), or stop with everything saved (fail).
    """

    nodes: int = 2
    timeout: float = 300.0
    minimum: int = 1
    on_few: OnFew = "continue"

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ConfigError(f"nodes is {self.nodes}; give at least 1")
        if not self.timeout > 0:
            raise ConfigError(f"timeout is {self.timeout}; give a positive number of seconds")
        if self.minimum < 1:
            raise ConfigError(f"minimum is {self.minimum}; give at least 1")


@dataclass(frozen=True)
class Fault:
    """Something that kept clients out of a round, or could have.

    Attributes:
        number: of the round, from 0.
        clients: ids.
        kind: ``away`` (no node has them), ``silent`` (no answer in time), ``failed`` (the node said why), ``refused``
            (what came is not what was asked for), ``skipped`` (too few were left to combine), or ``returned`` (their
            node was lost and is back; they may have been in time).
        reason: a sentence.
    """

    number: int
    clients: tuple[int, ...]
    kind: Literal["away", "silent", "failed", "refused", "skipped", "returned"]
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with the round counted from 1 as in every report."""
        return {"round": self.number + 1, "clients": list(self.clients), "kind": self.kind, "reason": self.reason}
