"""How fast a table is read: a csv of a million rows up to checked examples, against Arrow's own reading of the file.

The file has ten columns of numbers, three of categories, a label and an attribute, 110 MB. Ours (`read_rows`) reads it,
says which column is what, numbers classes and groups, splits it by group, measures on the training rows how numbers are
scaled and categories encoded, and holds every row as float32 and codes. Two peers: ``pyarrow.csv.read_csv`` with its
defaults, which ends with an Arrow table and nothing of that; and what one writes by hand to get tensors of it: the same
reading, numbers stacked and standardised in NumPy, words to codes by ``dictionary_encode``. Every way runs in processes
of its own, three passes each of which the last two count, in turns whose order changes; ratios are taken within a turn.
The first pass, in which modules are imported and machine code is made, stands beside them.
Processor time beside clock time, since the machine is shared. Memory is the process's peak (VmHWM).

Run: ``python benchmarks/reading_table.py``, two minutes. Writes results/benchmarks/reading_table.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import torch

from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.reading import read_rows
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark
from holdfast.primitives.memory import keep_freed_memory

ROWS, NUMBERS = 1_000_000, 10
WORDS = {"ward": 5, "unit": 20, "colour": 3}
CHECKED = 1_000  # rows whose numbers both ways must agree on


def write_table(path: Path) -> None:
    """The file that is read."""
    rng = np.random.default_rng(0)
    columns = {f"x{number}": rng.normal(size=ROWS).round(4) for number in range(NUMBERS)}
    words = {name: rng.choice([f"{name}-{value}" for value in range(many)], ROWS) for name, many in WORDS.items()}
    label = np.where(columns["x0"] + rng.normal(size=ROWS) > 0, "yes", "no")
    pa_csv.write_csv(pa.table({**columns, **words, "sex": rng.choice(["f", "m"], ROWS), "label": label}), path)


def ours(path: Path) -> torch.Tensor:
    """Checked examples in three parts."""
    rows = read_rows(str(path), ReadingOptions())
    splits = rows.splits("table")
    assert len(splits.train) + len(splits.validation) + len(splits.test) == ROWS
    inputs = rows.examples.inputs.gather(torch.arange(CHECKED))
    assert isinstance(inputs, torch.Tensor)
    return inputs[:, :NUMBERS]


def arrow(path: Path) -> torch.Tensor:
    """Arrow's table and nothing else."""
    table = pa_csv.read_csv(path)
    first = table.slice(0, CHECKED)
    return torch.tensor([first[f"x{number}"].to_pylist() for number in range(NUMBERS)]).T


def by_hand(path: Path) -> torch.Tensor:
    """Tensors of Arrow's table: standardised numbers, codes of words."""
    table = pa_csv.read_csv(path)
    numbers = np.stack([table[f"x{number}"].to_numpy() for number in range(NUMBERS)], 1)
    scaled = torch.from_numpy(((numbers - numbers.mean(0)) / numbers.std(0)).astype(np.float32))
    for name in (*WORDS, "sex", "label"):
        codes = table[name].dictionary_encode().unify_dictionaries()
        torch.from_numpy(np.concatenate([chunk.indices.to_numpy() for chunk in codes.chunks]).astype(np.int64))
    return scaled[:CHECKED]


MEASURES = {
    "time": "clock",
    "processor time": "processor",
    "memory": "memory",
    "first time in a process": "first",
    "first processor time in a process": "first processor",
}
WAYS: dict[str, Callable[[Path], torch.Tensor]] = {"ours": ours, "arrow": arrow, "by hand": by_hand}


def alone(way: str, path: Path) -> dict[str, float]:
    """Three passes in this process: seconds by the clock and of processors, and MiB at the peak."""
    keep_freed_memory()
    torch.set_num_threads(1)
    clock, processor = [], []
    for _ in range(3):
        spent, started = sum(os.times()[:2]), time.perf_counter()
        values = WAYS[way](path)
        clock.append(time.perf_counter() - started)
        processor.append(sum(os.times()[:2]) - spent)
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    return {
        "clock": statistics.mean(clock[1:]),
        "processor": statistics.mean(processor[1:]),
        "memory": peak,
        "first": clock[0],
        "first processor": processor[0],
        "correlation": float(np.corrcoef(values[:, 0], values[:, 1])[0, 1]),
    }


def measured(way: str, path: Path) -> dict[str, float]:
    """What a fresh process says."""
    command = [sys.executable, __file__, "--alone", way, str(path)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


def ratios(path: Path, repetitions: int) -> list[Ratio]:
    """Ours over each of the peers."""
    rows = []
    for turn in range(repetitions):
        order = list(WAYS) if turn % 2 else list(reversed(WAYS))
        rows.append({way: measured(way, path) for way in order})
        if np.ptp([row["correlation"] for row in rows[-1].values()]) > 1e-4:
            raise SystemExit(f"the ways give different numbers: {rows[-1]}")
    for way in WAYS:
        shown = {key: statistics.median(row[way][key] for row in rows) for key in rows[0][way]}
        print(f"{way}: " + ", ".join(f"{key} {value:.3f}" for key, value in shown.items()))
    found = []
    for peer, about in (
        ("arrow", "pyarrow.csv.read_csv alone"),
        ("by hand", "pyarrow.csv.read_csv and tensors by hand"),
    ):
        for what, key in MEASURES.items():
            values = [row["ours"][key] / row[peer][key] for row in rows]
            found.append(Ratio.over(f"{what} of reading (csv of {ROWS:,} rows, {peer})", values, 1.1, about))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(json.dumps(alone(chosen.alone[0], Path(chosen.alone[1]))))
        return
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "table.csv"
        write_table(path)
        print(f"{path.stat().st_size / 1e6:.0f} MB")
        found = ratios(path, chosen.repetitions)
    for ratio in found:
        print(f"{ratio.name}: {ratio.value:.3f} +- {ratio.spread}, target {ratio.target}, met: {ratio.met}")
    print(write_benchmark("reading_table", found, chosen.results))


if __name__ == "__main__":
    main()
