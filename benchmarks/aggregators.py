"""What our robust aggregators cost beside byzfl's, for 100 updates of 20,522 float32 parameters and 20 attackers.

byzfl 0.0.11 is a published library of Byzantine-robust rules in PyTorch. Both get the same updates in the same run, on
one thread; ours and theirs alternate, ratios are CPU time of ours over theirs within a repetition. Reported are the
median ratio and the standard deviation over repetitions.

A sample is as many calls as last 50 ms, so that the mean, a tenth of a millisecond, is not measured by the moment at
which somebody else took the cache. Both means are torch's; ours then looks at the result for what is not finite, which
takes 3 percent, since updates near the largest number would make it infinite.

What differs: our geometric median is iterated until it has converged, theirs three times. Ours keep their bounds for
every finite number, theirs overflow. Both Krums make the same number of neighbours count.

Needs byzfl: ``pip install --no-deps byzfl`` (its benchmark runner imports torchvision, which is not needed here).
Run: ``python benchmarks/aggregators.py``. Writes results/benchmarks/aggregators.json.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from holdfast.federated.aggregation import (
    Bucketing,
    CentredClipping,
    Clipping,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    NearestNeighbourMixing,
    TrimmedMean,
    clip_longest,
)
from holdfast.papers.engine.benchmarks import Ratio, cpu_seconds, write_benchmark

CLIENTS, PARAMETERS, ATTACKERS = 100, 20_522, 20
SAMPLE = 0.05  # seconds
Rule = Callable[[Tensor], Any]


def rules(byzfl: Any, updates: Tensor) -> dict[str, tuple[Rule, Rule]]:
    """Ours and theirs, by name."""
    f, limit = ATTACKERS, float(updates.norm(dim=1).median())
    return {
        "median": (Median(), byzfl.Median()),
        "trimmed mean": (lambda given: TrimmedMean()(given, f=f), byzfl.TrMean(f)),
        "geometric median": (GeometricMedian(), byzfl.GeometricMedian()),
        "Krum": (lambda given: Krum()(given, f=f - 1), byzfl.Krum(f)),
        "multi-Krum": (lambda given: MultiKrum(keep=CLIENTS - f)(given, f=f - 1), byzfl.MultiKrum(f)),
        "adaptive clipping": (lambda given: clip_longest(given, f), lambda given: byzfl.ARC(f)(given.clone())),
        "clipping": (Clipping().prepare, lambda given: byzfl.Clipping(limit)(given.clone())),
        "centred clipping": (CentredClipping(limit), byzfl.CenteredClipping(tau=limit)),
        "nearest-neighbour mixing": (lambda given: NearestNeighbourMixing().prepare(given, f=f), byzfl.NNM(f)),
        "bucketing": (Bucketing(2).prepare, byzfl.Bucketing(2)),
        "mean": (Mean(), byzfl.Average()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    sys.modules.setdefault("byzfl.benchmark", ModuleType("byzfl.benchmark"))
    import byzfl  # noqa: PLC0415

    torch.set_num_threads(1)
    updates = 0.01 * torch.randn(CLIENTS, PARAMETERS, generator=torch.Generator().manual_seed(0))
    ratios = []
    print(f"| {CLIENTS} x {PARAMETERS:,} | ours, ms | byzfl, ms | ours / byzfl |\n| --- | --- | --- | --- |")
    with threadpool_limits(1):
        for name, (ours, theirs) in rules(byzfl, updates).items():
            both = partial(ours, updates), partial(theirs, updates)
            calls = [max(5, math.ceil(SAMPLE / cpu_seconds(work, 5))) for work in both]
            rows = [
                tuple(cpu_seconds(work, times) for work, times in zip(both, calls, strict=True))
                for _ in range(chosen.repetitions + 1)
            ][1:]
            mine, peer = (statistics.median(column) for column in zip(*rows, strict=True))
            quotients = [row[0] / row[1] for row in rows]
            ratio = Ratio.over(f"time of {name} / byzfl's", quotients, 1.0, "byzfl")
            ratios.append(ratio)
            print(f"| {name} | {1e3 * mine:.1f} | {1e3 * peer:.1f} | {ratio.value:.2f} ± {ratio.spread:.2f} |")
    print(write_benchmark("aggregators", ratios, chosen.results))


if __name__ == "__main__":
    main()
