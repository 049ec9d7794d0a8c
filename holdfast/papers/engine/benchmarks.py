"""Speed and memory as ratios to a named peer measured in the same run: ``results/benchmarks/NAME.json``.

The file holds ``name, commit, ratios``; each ratio has ``name, value, target, peer, spread, better``. The scripts in
``benchmarks/`` measure with what is here and write it, the documentation reads it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.papers.engine.jsonfile import expect_keys, number, number_or_none, read_json, text, write_json
from holdfast.provenance import git_commit

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Ratio:
    """One of our numbers divided by the peer's.

    Attributes:
        name: what is compared.
        value: ours divided by the peer's.
        target: what it should be at most, or at least.
        peer: who it is compared with, such as ``torch DataLoader``.
        spread: sample standard deviation of the ratio over repetitions, where it was repeated.
        better: whether `target` is a maximum (``lower``) or a minimum (``higher``).
    """

    name: str
    value: float
    target: float
    peer: str
    spread: float | None = None
    better: Better = "lower"

    @classmethod
    def over(cls, name: str, values: Sequence[float], target: float, peer: str, better: Better = "lower") -> Ratio:
        """The median over repetitions, and their spread where there are several."""
        spread = statistics.stdev(values) if len(values) > 1 else None
        return cls(name, statistics.median(values), target, peer, spread, better)

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


@dataclass(frozen=True)
class Benchmark:
    """What one benchmark script measured.

    Attributes:
        name: the script's name.
        commit: the commit of holdfast's code, where it is known.
        ratios: what it measured.
    """

    name: str
    commit: str | None
    ratios: tuple[Ratio, ...]


def cpu_seconds(work: Callable[[], Any], times: int = 1) -> float:
    """Processor time of a call, the mean of so many; other processes don't disturb it as they do a clock."""
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) / times


def peak_memory() -> float:
    """The largest resident size of this process so far, in MiB.

    It is what ``ru_maxrss`` gives, except that Linux lets a new process inherit that from its parent.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def write_benchmark(name: str, ratios: Sequence[Ratio], results_dir: Path) -> Path:
    """Write what a benchmark measured.

    Args:
        name: the benchmark.
        ratios: what it measured.
        results_dir: the results folder.

    Returns:
        The file.
    """
    file = results_dir / "benchmarks" / f"{name}.json"
    write_json(file, {"name": name, "commit": git_commit(), "ratios": [asdict(ratio) for ratio in ratios]})
    return file


def read_benchmarks(results_dir: Path) -> tuple[Benchmark, ...]:
    """Every benchmark below the results folder, by name.

    Raises:
        DataError: if a file there is not one of a benchmark.
    """
    files = sorted((results_dir / "benchmarks").glob("*.json"))
    return tuple(read_json(file, "benchmark's file", _benchmark) for file in files)


def _benchmark(stored: Mapping[str, Any]) -> Benchmark:
    expect_keys(stored, "name commit ratios")
    commit = None if stored["commit"] is None else text(stored["commit"])
    return Benchmark(text(stored["name"]), commit, tuple(_ratio(ratio) for ratio in stored["ratios"]))


def _ratio(stored: Mapping[str, Any]) -> Ratio:
    expect_keys(stored, "name value target peer spread better")
    if stored["better"] not in ("lower", "higher"):
        raise ValueError(f"better is {stored['better']!r}; it is lower or higher")
    return Ratio(
        name=text(stored["name"]),
        value=number(stored["value"]),
        target=number(stored["target"]),
        peer=text(stored["peer"]),
        spread=number_or_none(stored["spread"]),
        better=stored["better"],
    )
