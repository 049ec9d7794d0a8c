"""What a run of `fit` on a million lazy examples takes in memory, beyond what it takes on ten thousand.

Inputs are 64 numbers made when they are asked for, by example, so that nothing of them is kept anywhere and no pages of
a file count. Each case trains one epoch of a small network on ten classes by a method, with the sweeps, inferences and
choices that belong to it, evaluates on a tenth as many examples and writes the page, in a process of its own. The peak
is the process's own (VmHWM), over what it was before the data.

Run: ``python benchmarks/fit_memory.py``, many minutes. Writes results/benchmarks/sizes/fit_memory.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import Inputs
from holdfast.methods import build_method
from holdfast.models.registry import build
from holdfast.provenance import machine
from holdfast.report import write_report
from holdfast.training import Run, Training, fit

WIDTH, CLASSES = 64, 10
SIZES = (10_000, 1_000_000)
METHODS: Mapping[str, Mapping[str, Any]] = {
    "erm": {},
    "jtt": {"infer_epoch": 1},
    "spare": {"infer_epoch": 1},
    "crest": {"subset": 2_000},
    "epic": {"start": 0, "every": 1},
}


class Made(Inputs):
    """Inputs that are computed from their position."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def gather(self, positions: Tensor) -> Tensor:
        """Numbers around the centre of each example's class."""
        place = positions[:, None] * WIDTH + torch.arange(WIDTH)
        noise = torch.frac(torch.sin(place.double() * 12.9898) * 43758.5453).float()
        return noise + torch.nn.functional.one_hot(positions % CLASSES, WIDTH)


def made(count: int, first: int) -> Examples:
    """Examples whose inputs are made when they are asked for."""
    return Examples.of(Made(count), torch.arange(count) % CLASSES, ids=torch.arange(first, first + count))


def peak() -> int:
    """The largest memory that this process has had, in bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024


def alone(method: str, size: int) -> dict[str, Any]:
    """A run in this process."""
    torch.set_num_threads(1)
    model = build("mlp", (WIDTH,), CLASSES, seed=0)
    before = peak()
    splits = Splits("made", made(size, 0), made(size // 10, size), made(size // 10, 2 * size))
    policy = build_method(method, {method: METHODS[method]})
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", {"method": method})
        fit(model, splits, policy, Training(epochs=1, batch_size=512), run=run)
        trained = peak()
        write_report(run, splits)
    return {
        "method": method,
        "examples": size,
        "before": before,
        "after_training": trained,
        "after_report": peak(),
        "bytes_per_example": round((peak() - before) / size, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(json.dumps(alone(chosen.alone[0], int(chosen.alone[1]))))
        return
    rows = []
    for method in chosen.methods:
        for size in SIZES:
            command = [sys.executable, __file__, "--alone", method, str(size)]
            found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
            rows.append(dict(json.loads(found.stdout.splitlines()[-1])))
            row = rows[-1]
            more = (row["after_report"] - row["before"]) / 1e6
            each = row["bytes_per_example"]
            print(f"{method}, {size:,} examples: {more:,.0f} MB more, {each} bytes an example", flush=True)
        stored = {"machine": machine(), "width": WIDTH, "classes": CLASSES, "cases": rows}
        (chosen.results / "benchmarks" / "sizes" / "fit_memory.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
