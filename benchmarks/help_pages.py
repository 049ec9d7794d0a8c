"""What a help page costs: processor time of ``holdfast fit --help`` and of others, divided by ``import torch``.

Each runs in a process of its own, in turns, and the time is that of the process and its system calls. ``fit --help``
shows the options of a data set, of a method and of the training, whose classes are defined beside code that uses torch,
so torch is imported; what is added is to stay below 15 %. It can come out below 1, because a command keeps the garbage
collector away from imports. Pages that show no such class import no torch, nor does ``import holdfast``.

Run: ``python benchmarks/help_pages.py``, a minute. Writes results/benchmarks/help_pages.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from holdfast.papers.engine.benchmarks import Ratio, write_benchmark

TORCH = ("-c", "import torch")
#: What is measured, and what its share of `import torch` should be at most.
MEASURED = {
    "holdfast fit --help": (("-m", "holdfast.cli.main", "fit", "--help"), 1.15),
    "holdfast federate --help": (("-m", "holdfast.cli.main", "federate", "--help"), 1.15),
    "holdfast --help": (("-m", "holdfast.cli.main", "--help"), 0.15),
    "holdfast runs --help": (("-m", "holdfast.cli.main", "runs", "--help"), 0.25),
    "import holdfast": (("-c", "import holdfast"), 0.05),
}


def cpu_seconds_of(words: tuple[str, ...]) -> float:
    """Processor time of a Python process, its own and the system's for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}  # compiled, as when installed
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    ratios: dict[str, list[float]] = {name: [] for name in MEASURED}
    for words in [TORCH, *(ours for ours, _ in MEASURED.values())]:
        cpu_seconds_of(words)  # the first of each reads files that the next find in memory
    for _ in range(chosen.repetitions):
        for name, (ours, _) in MEASURED.items():
            first, second = cpu_seconds_of(TORCH), cpu_seconds_of(ours)
            ratios[name].append(second / first)
    rows = [
        Ratio.over(name, ratios[name], target, "python -c 'import torch'") for name, (_, target) in MEASURED.items()
    ]
    for name, values in ratios.items():
        print(f"{name}: {statistics.mean(values):.3f} ± {statistics.stdev(values):.3f} of `import torch`")
    print(write_benchmark("help_pages", rows, chosen.results))


if __name__ == "__main__":
    main()
