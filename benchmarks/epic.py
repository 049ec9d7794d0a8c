"""What a round of EPIC costs beside training: time for a class of 5,000, memory for a class of 50,000.

- Time: medoids of one class of 5,000 examples (a tenth of them, softmax residuals of ten classes), times ten classes,
  over an epoch of ResNet-18 on 50,000 images of 32 x 32, which is 391 times a measured step of 128 (forward, backward,
  SGD) in the same run. The forward pass over all examples that a round also needs is measured as well, as 391 times a
  forward step. Processor time of one thread each, in turns.
- Against the naive greedy on 1,000 examples, 200 medoids: the same list, and how much faster.
- Memory: growth of the resident size while choosing 5,000 medoids of 50,000 examples, in a process of its own.

Run: ``python benchmarks/epic.py``, some ten minutes. Writes results/benchmarks/epic.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import Tensor

from holdfast.models.registry import build
from holdfast.papers.engine.benchmarks import Ratio, cpu_seconds, peak_memory, write_benchmark
from holdfast.poisoning import gradient_medoids
from holdfast.primitives.facility_location import facility_location

STEPS = 391
GIGABYTES = 2.0


def residuals(n: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    labels = torch.zeros(n, dtype=torch.int64)
    logits = 2 * torch.randn(n, 10, generator=draw) + 4 * F.one_hot(labels, 10)
    return logits.softmax(1) - F.one_hot(labels, 10), labels


def choose(n: int, fraction: float) -> Tensor:
    gradients, labels = residuals(n)
    return gradient_medoids(gradients, labels, fraction, stream=torch.Generator().manual_seed(0)).positions


def rounds(repetitions: int, n: int) -> list[Ratio]:
    model = build("resnet18-cifar", (3, 32, 32), 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(128, 3, 32, 32), torch.arange(128) % 10

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    def forward() -> None:
        with torch.no_grad():
            model(images)

    choose(500, 0.1)
    times: dict[str, list[float]] = {"choosing": [], "step": [], "forward": []}
    for _ in range(repetitions):
        times["choosing"].append(10 * cpu_seconds(lambda: choose(n, 0.1)))
        times["step"].append(STEPS * cpu_seconds(step))
        times["forward"].append(STEPS * cpu_seconds(forward))
    print(", ".join(f"{what} {statistics.median(taken):.1f} s" for what, taken in times.items()))
    chosen = [a / b for a, b in zip(times["choosing"], times["step"], strict=True)]
    whole = [(a + f) / b for a, f, b in zip(times["choosing"], times["forward"], times["step"], strict=True)]
    return [
        Ratio.over("choosing / an epoch of ResNet-18", chosen, 2.0, "an epoch"),
        Ratio.over("a whole round / an epoch of ResNet-18", whole, 2.0, "an epoch"),
    ]


def against_naive(repetitions: int) -> list[Ratio]:
    gradients, _ = residuals(1000)
    distance = torch.cdist(gradients.double(), gradients.double())
    similarity = (distance.max() - distance).float()
    ratios = []
    for _ in range(repetitions):
        naive = cpu_seconds(lambda: facility_location(similarity, 200, metric="precomputed", method="naive"))
        ratios.append(naive / cpu_seconds(lambda: choose(1000, 0.2)))
    return [Ratio.over("speed / naive greedy, 1,000 examples", ratios, 5.0, "naive", "higher")]


def memory(n: int) -> list[Ratio]:
    command = [sys.executable, __file__, "--alone", str(n)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])  # noqa: S603
    print(f"{n:,} examples: {found['grown']:.0f} MiB, {found['seconds']:.0f} s")
    return [Ratio(f"GiB for a class of {n:,}", found["grown"] / 1024, GIGABYTES, "2 GiB")]


def alone(n: int) -> dict[str, float]:
    choose(500, 0.1)
    before = peak_memory()
    taken = cpu_seconds(lambda: choose(n, 0.1))
    return {"grown": peak_memory() - before, "seconds": taken}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition; nothing is written")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--alone", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if chosen.alone:
            print(json.dumps(alone(chosen.alone)))
            return
        repetitions = 1 if chosen.quick else chosen.repetitions
        ratios = rounds(repetitions, 1000 if chosen.quick else 5000) + against_naive(repetitions)
        ratios += memory(13_000 if chosen.quick else 50_000)
    if not chosen.quick:
        print(write_benchmark("epic", ratios, chosen.results))


if __name__ == "__main__":
    main()
