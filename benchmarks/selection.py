"""How fast exemplars are chosen: our greedy facility location beside apricot-select and submodlib.

A tenth of n points of 128 normal coordinates is chosen. All three get the same float32 similarities, the largest
distance minus the distance, and one thread; they take turns, ratios are CPU time of theirs over ours within a
repetition. The time of submodlib includes making its function, which copies the matrix: new similarities need a new
one. What is chosen must be worth the same: f of each over f of ours, and for 2,000 points f of ours over that of a
greedy that computes every gain from its definition.

- ``crest`` is the size that CREST chooses at: 50 of 500 points.
- ``on points`` is ours without given similarities, their computation included; for 50,000 points, whose similarities
  would take 10 GB, they are computed again when they are needed.
- Memory is the growth of the resident size while choosing 50 of 25,000, 50,000 and 100,000 points, each in a process
  of its own; linear growth doubles with n.
- ``training set`` is what a choice by residuals costs as the training set grows: CREST's (128 of each of five random
  subsets of 512) up to 200,000 examples of ten classes, which should not care, and CRAIG's (a tenth of each class) up
  to 50,000, which should grow faster than the set.
- First call: a process that has compiled nothing yet, against its second call, which must not compile.

Needs both: ``pip install apricot-select submodlib-py``. Run: ``python benchmarks/selection.py``. Writes
results/benchmarks/selection.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import Tensor

from holdfast.coresets.crest.mini_batches import SubsetCandidates, mini_batch_coresets
from holdfast.papers.engine.benchmarks import Ratio, cpu_seconds, peak_memory, write_benchmark
from holdfast.primitives.facility_location import facility_location

DIMENSIONS = 128
SIZES = (2_000, 5_000, 10_000)
MEMORY_SIZES = (25_000, 50_000, 100_000)
Choose = Callable[[], Any]

_SAME = 1 - 1e-6  # but for rounding


def points_of(n: int) -> Tensor:
    return torch.randn(n, DIMENSIONS, generator=torch.Generator().manual_seed(0))


def similarity_of(points: Tensor) -> Tensor:
    distance = torch.cdist(points, points)
    return (distance.max() - distance).clamp_min_(0)


def worth(similarity: Tensor, chosen: Any) -> float:
    return float(similarity[:, torch.as_tensor(chosen)].amax(1).sum(dtype=torch.float64))


def timed(choose: Choose) -> tuple[float, Any]:
    started = time.process_time()
    chosen = choose()
    return time.process_time() - started, chosen


def contestants(similarity: Tensor, k: int) -> dict[str, Choose]:
    """Ours and theirs, by name, each ready to choose."""
    from apricot import FacilityLocationSelection  # noqa: PLC0415
    from submodlib import FacilityLocationFunction  # noqa: PLC0415

    matrix = similarity.numpy()

    def submodlib() -> list[int]:
        function = FacilityLocationFunction(n=len(matrix), mode="dense", separate_rep=False, sijs=matrix)
        found = function.maximize(
            budget=k, optimizer="LazyGreedy", stopIfZeroGain=False, stopIfNegativeGain=False, show_progress=False
        )
        return [index for index, _ in found]

    def apricot() -> Any:
        return FacilityLocationSelection(k, metric="precomputed", optimizer="lazy").fit(matrix).ranking.copy()

    return {
        "ours": lambda: facility_location(similarity, k, metric="precomputed").chosen,
        "apricot": apricot,
        "submodlib": submodlib,
    }


def compare(name: str, n: int, k: int, repetitions: int, target: float) -> list[Ratio]:
    """Time and objective for one size."""
    similarity = similarity_of(points_of(n))
    choices = contestants(similarity, k)
    times: dict[str, list[float]] = {who: [] for who in choices}
    values: dict[str, float] = {}
    for turn in range(repetitions):
        order = list(choices)[turn % 3 :] + list(choices)[: turn % 3]
        for who in order:
            taken, chosen = timed(choices[who])
            times[who].append(taken)
            values[who] = worth(similarity, chosen)
    ratios = []
    rows = list(zip(times["apricot"], times["submodlib"], times["ours"], strict=True))
    for peer, quotients in {
        "apricot": [row[0] / row[2] for row in rows],
        "submodlib": [row[1] / row[2] for row in rows],
        "the faster of both": [min(row[:2]) / row[2] for row in rows],
    }.items():
        ratios.append(Ratio.over(f"{name}: speed / {peer}", quotients, target, peer, "higher"))
    for peer in ("apricot", "submodlib"):
        ratios.append(
            Ratio(f"{name}: objective / {peer}'s", values["ours"] / values[peer], _SAME, peer, None, "higher")
        )
    shown = "  ".join(f"{who} {1e3 * statistics.median(taken):.1f} ms" for who, taken in times.items())
    print(f"{name}: {shown}; {ratios[2].value:.1f} times as fast as the faster of both")
    if n <= SIZES[0]:
        exact = worth(similarity, facility_location(similarity, k, metric="precomputed", method="naive").chosen)
        own = values["ours"] / exact
        ratios.append(Ratio(f"{name}: objective / exact greedy's", own, _SAME, "exact greedy", None, "higher"))
    return ratios


def on_points(n: int) -> list[Ratio]:
    """Ours from coordinates, and what stochastic greedy saves and loses."""
    points, k = points_of(n), n // 10
    exact, chosen = timed(lambda: facility_location(points, k))
    stream = torch.Generator().manual_seed(0)
    fast, sampled = timed(lambda: facility_location(points, k, method="stochastic", stream=stream))
    share = float(sampled.gains.sum() / chosen.gains.sum())
    print(f"{n:,} on points: {exact:.2f} s, stochastic {fast:.2f} s with {share:.4f} of the objective")
    return [Ratio(f"{n:,} on points: objective of stochastic / exact", share, 0.99, "exact greedy", None, "higher")]


def of_training_set(n: int, *, craig: bool) -> tuple[float, float]:
    """Seconds that a choice of CREST and, where it is asked for, of CRAIG takes from so many examples."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (n,), generator=stream)
    residuals = (2 * torch.randn(n, 10, generator=stream)).softmax(1) - F.one_hot(labels, 10)

    def choose() -> None:
        pool = SubsetCandidates(torch.arange(n), labels, by_class=True)
        drawn = torch.cat([pool.draw(512, stream) for _ in range(5)])
        mini_batch_coresets(residuals[drawn], labels[drawn], 5, 128)

    mini_batches, subset = cpu_seconds(choose, 20), 0.0
    if craig:
        classes = [(labels == label).nonzero().flatten() for label in range(10)]
        subset = cpu_seconds(lambda: facility_location(residuals, [len(part) // 10 for part in classes], parts=classes))
    print(f"training set of {n:,}: CREST {1e3 * mini_batches:.1f} ms" + (f", CRAIG {subset:.2f} s" if craig else ""))
    return mini_batches, subset


def of_training_sets() -> list[Ratio]:
    """How a choice gets dearer as the training set grows."""
    few, middle, many = (of_training_set(n, craig=n <= 50_000) for n in (10_000, 50_000, 200_000))
    return [
        Ratio("training set of 200,000 / of 10,000: CREST's choice", many[0] / few[0], 2.0, "itself"),
        Ratio(
            "training set of 50,000 / of 10,000: CRAIG's choice",
            middle[1] / few[1],
            5.0,
            "linear growth",
            None,
            "higher",
        ),
    ]


def measured_alone(task: str, n: int) -> dict[str, float]:
    """What a fresh process says about a task."""
    command = [sys.executable, __file__, "--alone", task, "--points", str(n)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return dict(json.loads(found.stdout.splitlines()[-1]))


def alone(task: str, n: int) -> dict[str, float]:
    """In a process of its own: growth of memory, or times of the first two calls."""
    if task == "calls":
        similarity = similarity_of(points_of(n))
        started = time.perf_counter()
        facility_location(similarity, n // 10, metric="precomputed")
        middle = time.perf_counter()
        facility_location(similarity, n // 10, metric="precomputed")
        return {"first": middle - started, "second": time.perf_counter() - middle}
    points = torch.randn(n, 10, generator=torch.Generator().manual_seed(0))
    facility_location(points[:200], 5)
    before = peak_memory()
    started = time.perf_counter()
    facility_location(points, 50)
    return {"grown": peak_memory() - before, "seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition; nothing is written")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--alone", choices=("memory", "calls"), help=argparse.SUPPRESS)
    parser.add_argument("--points", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if chosen.alone:
            print(json.dumps(alone(chosen.alone, chosen.points)))
            return
        ratios = compare("500 (crest)", 500, 50, 1 if chosen.quick else 4 * chosen.repetitions, 10.0)
        for n in SIZES[:1] if chosen.quick else SIZES:
            ratios += compare(f"{n:,}", n, n // 10, 1 if chosen.quick else chosen.repetitions, 8.0)
        calls = measured_alone("calls", 500)
        print(f"first call {calls['first']:.3f} s, second {1e3 * calls['second']:.2f} ms")
        ratios.append(
            Ratio("500: time of the second call / the first", calls["second"] / calls["first"], 0.5, "itself")
        )
        if chosen.quick:
            return
        for n in (*SIZES, 50_000):
            ratios += on_points(n)
        ratios += of_training_sets()
        grown = {n: measured_alone("memory", n) for n in MEMORY_SIZES}
        for n, found in grown.items():
            print(f"{n:,}: {found['grown']:.0f} MiB, {found['seconds']:.1f} s")
        smallest, largest = MEMORY_SIZES[0], MEMORY_SIZES[-1]
        growth = grown[largest]["grown"] / grown[smallest]["grown"]
        ratios.append(Ratio("memory for 100,000 points / for 25,000 (n^2: 16)", growth, 5.0, "linear growth: 4"))
    print(write_benchmark("selection", ratios, chosen.results))


if __name__ == "__main__":
    main()
