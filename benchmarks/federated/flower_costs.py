"""What runs on Flower's deployment cost, and the ratios that are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.papers.engine.benchmarks import Ratio

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        system: which.
        turn: the pass.
        clients: in the federation, all of them in every round.
        cpu: CPU-seconds per round, of all processes.
        wall: seconds per round.
        first: seconds from the start of the SuperLink to the end of the first round.
        load: of the machine when it began.
    """

    system: str
    turn: int
    clients: int
    cpu: float
    wall: float
    first: float
    load: float


def ratios(rows: Sequence[Row], differences: Sequence[float]) -> list[Ratio]:
    """What is written down, of the systems that ran."""
    by = {(row.system, row.turn): row for row in rows}
    turns = sorted({row.turn for row in rows})
    found: list[Ratio] = []

    def add(name: str, above: str, below: str, target: float, *, peer: str, per_client: bool = False) -> None:
        if (above, turns[0]) not in by or (below, turns[0]) not in by:
            return
        quotients = []
        for turn in turns:
            first, second = by[above, turn], by[below, turn]
            quotients.append(first.cpu / second.cpu * (second.clients / first.clients if per_client else 1))
        found.append(Ratio.over(name, quotients, target, peer, "higher" if per_client else "lower"))

    add("CPU per round, engine / FedAvg", "engine", "fedavg", 1.1, peer="Flower's FedAvg, one client per node")
    add("CPU per round, strategy / FedAvg", "strategy", "fedavg", 1.1, peer="Flower's FedAvg, one client per node")
    add(
        "CPU per client, one message each / a shard",
        "engine",
        "shards",
        10.0,
        peer="one message per client",
        per_client=True,
    )
    if differences:
        found.append(Ratio("largest difference of a weight", max(differences), TOLERANCE, "Flower's FedAvg"))
    return found
