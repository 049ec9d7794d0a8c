"""What keeping freed memory saves: forward passes of ResNet-20 on 512 images, as `ModelOutputs` makes them.

Each way runs in processes of its own, in turns: with `keep_freed_memory`, which every command and every worker of
``holdfast reproduce`` calls first, and as glibc does it by itself. Processor time of one thread, the mean of five
passes after a first one; a ratio is ours over glibc's within a turn. Its target only says that it must pay.

Run: ``python benchmarks/kept_memory.py``, a minute. Writes results/benchmarks/kept_memory.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from holdfast.models.registry import build
from holdfast.papers.engine.benchmarks import Ratio, cpu_seconds, write_benchmark
from holdfast.primitives.memory import keep_freed_memory

IMAGES, PASSES = 512, 5
WAYS = ("kept", "given back")


def alone(way: str) -> dict[str, float]:
    """Seconds and fetched pages of a pass."""
    if way == "kept" and not keep_freed_memory():
        raise SystemExit("the C library of this system is not glibc; there is nothing to compare")
    model = build("resnet20", (3, 32, 32), 10, seed=0).eval()
    images = torch.randn(IMAGES, 3, 32, 32)
    with torch.no_grad():
        model(images)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        seconds = cpu_seconds(lambda: model(images), PASSES)
    return {"seconds": seconds, "pages": (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / PASSES}


def measured(way: str) -> dict[str, float]:
    """What a fresh process says."""
    command = [sys.executable, __file__, "--alone", way]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return dict(json.loads(found.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--alone", choices=WAYS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.alone:
        print(json.dumps(alone(chosen.alone)))
        return
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for turn in range(chosen.repetitions):
        for way in WAYS if turn % 2 else reversed(WAYS):
            rows[way].append(measured(way))
    for way, found in rows.items():
        seconds, pages = (statistics.median(row[what] for row in found) for what in ("seconds", "pages"))
        print(f"{way}: {seconds:.2f} s and {pages:,.0f} pages a pass")
    ratios = [ours["seconds"] / theirs["seconds"] for ours, theirs in zip(*(rows[way] for way in WAYS), strict=True)]
    ratio = Ratio.over(f"a pass of ResNet-20 on {IMAGES} images", ratios, 1.0, "glibc as it is")
    print(write_benchmark("kept_memory", [ratio], chosen.results))


if __name__ == "__main__":
    main()
