"""From runs to figures: clients per second, ratios within a pass, targets, tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from holdfast.papers.engine.benchmarks import Better, Ratio

FLOWER = ("flower",)
PFL = ("pfl", "pfl x2")
LOOPS = ("loop", "loop x2")
OTHERS = (*FLOWER, *PFL, *LOOPS)
PFLLIB_DITTO, LOOP_BESIDE_IT = 28.0, 68.0
TOLERANCE = 1e-6
PEERS_TOLERANCE = 1e-5  # pfl keeps some sums in single precision
GIB = 2**30

#: Workload, whom we are compared with (the fastest of them), and how many times as fast we should be in the median.
SPEEDS = (
    ("logistic", FLOWER, 20.0),
    ("logistic", PFL, 4.0),
    ("mlp", FLOWER, 3.0),
    ("mlp", PFL, 1.3),
    ("w2", OTHERS, 1.0),
    ("gru", OTHERS, 1.5),
    ("transformer", OTHERS, 1.5),
)
#: The same for every single pass.
EVERY_PASS = (("w1", OTHERS, 1.6),)
SHARED = ("logistic", "mlp", "w1", "w2")
TEXTS = ("gru", "transformer")


@dataclass(frozen=True)
class Row:
    """What one run of one system gave.

    Attributes:
        workload: its name.
        system: its name.
        turn: number of the pass.
        speed: clients per second in the median round, the first left out.
        best: clients per second in the fastest round.
        first: seconds from the start of the command to the end of the first round.
        pss: peak of the proportional set sizes of all processes, in bytes.
        rss: peak of their resident sizes, in bytes.
        cpu: CPU milliseconds of all processes per client, from the end of the first round to that of the last.
        load: the machine's load average of the last minute before the run.
        digest: sum of the absolute final weights, personal ones included.
        note: how the system ran, where it chose that itself.
        commit: of holdfast's code.
    """

    workload: str
    system: str
    turn: int
    speed: float
    best: float
    first: float
    pss: int
    rss: int
    cpu: float
    load: float
    digest: float
    note: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Compared:
    """A figure per pass, and what it should be in the median or in every pass; no target where none was set."""

    name: str
    values: tuple[float, ...]
    target: float | None
    peer: str
    higher: bool = True
    every: bool = False

    @property
    def ratio(self) -> Ratio:
        """The median over passes, or the worst of them, with their standard deviation; only where there is a target."""
        assert self.target is not None
        better: Better = "higher" if self.higher else "lower"
        ratio = Ratio.over(self.name, self.values, self.target, self.peer, better)
        return replace(ratio, value=min(self.values) if self.higher else max(self.values)) if self.every else ratio


def speeds(ends: Sequence[float], clients: int) -> tuple[float, float]:
    """Clients per second in the median and in the fastest round; the first round only starts the clock."""
    walls = np.diff(ends)
    return clients / float(np.median(walls)), clients / float(walls.min())


def largest_difference(weights: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    """The largest absolute difference of a weight, divided by the largest absolute weight of the reference."""
    a, b = weights.astype(np.float64), reference.astype(np.float64)
    return float(np.abs(a - b).max() / np.abs(b).max())


def by_pass(rows: Iterable[Row], workload: str) -> list[dict[str, Row]]:
    """The rows of a workload by system, pass after pass."""
    turns: dict[int, dict[str, Row]] = {}
    for row in rows:
        if row.workload == workload:
            turns.setdefault(row.turn, {})[row.system] = row
    return [turns[turn] for turn in sorted(turns)]


def against(
    rows: Sequence[Row], workload: str, peers: Sequence[str], figure: Callable[[Row], float]
) -> tuple[float, ...]:
    """Our figure divided by the largest of the peers', in each pass that has both."""
    found = []
    for systems in by_pass(rows, workload):
        theirs = [figure(systems[peer]) for peer in peers if peer in systems]
        if "ours" in systems and theirs:
            found.append(figure(systems["ours"]) / max(theirs))
    return tuple(found)


def ditto_speeds(rows: Sequence[Row]) -> tuple[float, ...]:
    """Our Ditto's clients per second divided by PFLlib's, which is scaled by the loop's FedAvg on the same workload."""
    ours = {row.turn: row.speed for row in rows if (row.workload, row.system) == ("ditto", "ours")}
    loop = {row.turn: row.speed for row in rows if (row.workload, row.system) == ("w1", "loop")}
    return tuple(
        ours[turn] / (PFLLIB_DITTO * loop[turn] / LOOP_BESIDE_IT) for turn in sorted(ours.keys() & loop.keys())
    )


def digest_differences(rows: Sequence[Row], workload: str, system: str) -> tuple[float, ...]:
    """Relative difference of a system's digest from the loop's, per pass."""
    found = []
    for systems in by_pass(rows, workload):
        loop = systems.get("loop") or systems.get("loop x2")
        if loop is not None and system in systems:
            found.append(abs(systems[system].digest / loop.digest - 1))
    return tuple(found)


def compare(rows: Sequence[Row], agreement: Mapping[str, Mapping[str, float]]) -> list[Compared]:
    """Everything that was asked to be shown.

    Args:
        rows: the timed runs.
        agreement: for each workload and system the largest difference of a weight from the loop's, in double precision.
    """
    found = []
    for workload, peers, target in SPEEDS:
        named = "best of Flower, pfl, loop" if peers == OTHERS else peers[0]
        values = against(rows, workload, peers, lambda row: row.speed)
        found.append(Compared(f"clients/s, ours / {named} ({workload})", values, target, named))
    for workload, peers, target in EVERY_PASS:
        values = against(rows, workload, peers, lambda row: row.speed)
        name = f"clients/s in the worst pass, ours / best of Flower, pfl, loop ({workload})"
        found.append(Compared(name, values, target, "best of Flower, pfl, loop", every=True))
    named = "PFLlib, scaled by the loop"
    found.append(Compared(f"clients/s, ours / {named} (ditto)", ditto_speeds(rows), 3.0, named))
    for workload in SHARED:
        values = against(rows, workload, FLOWER, lambda row: row.first)
        found.append(Compared(f"time to the first round, ours / flower ({workload})", values, 0.2, "flower", False))
        values = against(rows, workload, FLOWER, lambda row: row.pss)
        found.append(Compared(f"peak memory, ours / flower ({workload})", values, 0.5, "flower", False))
    for workload, systems in agreement.items():
        name = f"largest difference of a weight from the loop's, double precision ({workload})"
        found.append(Compared(name, (systems["ours"],), TOLERANCE, "loop", False))
        others = (max(value for system, value in systems.items() if system != "ours"),)
        name = f"the same of Flower, pfl and the loop in two processes ({workload})"
        found.append(Compared(name, others, PEERS_TOLERANCE, "loop", False))
    for workload in (*SHARED, *TEXTS, "ditto"):
        values = digest_differences(rows, workload, "ours")
        name = f"difference of the final digest from the loop's, ours, single precision ({workload})"
        found.append(Compared(name, values, None, "loop", False))
    memory = tuple(row.pss / (4 * GIB) for row in rows if row.workload == "many")
    found.append(Compared("memory of 100,000 clients / 4 GiB", memory, 1.0, "4 GiB", False))
    for workload in dict.fromkeys(row.workload for row in rows if "@" in row.workload):
        values = against(rows, workload, OTHERS, lambda row: row.speed)
        found.append(Compared(f"clients/s, ours / best of Flower, pfl, loop ({workload})", values, None, "best"))
    return [compared for compared in found if compared.values]


def between(values: Sequence[float], shape: str) -> str:
    """The median, and the least and the greatest where there are several."""
    middle = format(statistics.median(values), shape)
    return middle if len(values) == 1 else f"{middle} ({min(values):{shape}} to {max(values):{shape}})"


def runs_table(rows: Sequence[Row]) -> str:
    """One line per workload and system: the median over passes, and their range."""
    lines = [
        "| workload | system | clients/s | best round | first, s | PSS MB | RSS MB | CPU ms/client | digest off "
        "| commit |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for workload, system in dict.fromkeys((row.workload, row.system) for row in rows):
        same = [row for row in rows if (row.workload, row.system) == (workload, system)]
        off = digest_differences(rows, workload, system)
        cells = [
            workload,
            system,
            between([row.speed for row in same], ".3g"),
            between([row.best for row in same], ".3g"),
            between([row.first for row in same], ".1f"),
            between([row.pss / 1e6 for row in same], ".0f"),
            between([row.rss / 1e6 for row in same], ".0f"),
            between([row.cpu for row in same], ".3g"),
            f"{max(off):.1e}" if off else "",
            ", ".join(dict.fromkeys(row.commit[:7] for row in same)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def targets_table(compared: Sequence[Compared]) -> str:
    """One line per figure that was asked for."""
    lines = ["| figure | median (range) | target | |", "| --- | ---: | ---: | --- |"]
    for one in compared:
        target, verdict = "", ""
        if one.target is not None:
            target = f"{'>=' if one.higher else '<='} {one.target:g}"
            verdict = "PASS" if one.ratio.met else "FAIL"
        lines.append(f"| {one.name} | {between(one.values, '.3g')} | {target} | {verdict} |")
    return "\n".join(lines)
