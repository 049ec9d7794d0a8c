"""Speed and memory as ratios to a named peer measured in the same run: ``results/benchmarks/NAME.json``.

The file holds ``name, commit, ratios``; each ratio has ``name, value, target, peer, spread, better``. The scripts in
``benchmarks/`` write it, the documentation reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.papers.jsonfile import expect_keys, number, number_or_none, read_json, text, write_json
from holdfast.training.run import git_commit


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
    better: Literal["lower", "higher"] = "lower"

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
