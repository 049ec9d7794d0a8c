"""What SPARE's first stage costs: clusters and silhouettes of 200,000 outputs for k = 2 to 10, and the set-up of draws.

Two cases, with softmax outputs of two classes (points on a line, exact by sorting) and of ten (points in ten
dimensions). Every class has a majority cluster and several minorities; the outputs are the softmax of noisy logits.

- Time of `separate`, everything included, against scikit-learn's exact ``silhouette_score`` alone for the same work:
  nine values of k in every class. That would take hours, so it is timed on 8,000 points of one class and multiplied by
  9 * sum over classes of (class size / 8,000)^2; its distances grow with the square of the class size. The fastest of
  three calls in a row counts, because the first pays for fresh memory.
- Memory of `separate`: the peak of a process of its own, less what it had after a small warm-up, against 2 GiB.
- Time of `sampling_probabilities` at CelebA's size, against finding the group of each example by looking through
  the list of every group. That is quadratic too: it is timed on 2,000 examples and multiplied by (162,770 / 2,000)^2.
  And against itself on half as many examples: twice the time is linear.

CPU seconds on one thread; ours and the peer's alternate, and ratios are taken within a repetition. Reported are the
median ratio and the standard deviation over the repetitions.

Run: ``python benchmarks/spare_stage1.py``. Writes results/benchmarks/spare_stage1.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from holdfast.errors import HoldfastWarning
from holdfast.papers.engine.benchmarks import Ratio, cpu_seconds, peak_memory, write_benchmark
from holdfast.spurious.group_inference.partition import ClusterPartition
from holdfast.spurious.group_inference.separation import sampling_probabilities, separate

EXAMPLES = 200_000
CLASSES = (2, 10)
K_MAX = 10
TIMED_BY_SKLEARN = 8_000
CELEBA = 162_770
TIMED_BY_SCANNING = 2_000


def outputs(classes: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax outputs (n, classes) and labels (n,).

    In each class 85 % of the examples are taken for what they are; minorities, each half as large as the one before,
    for another class, and the last one for nothing in particular.
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (n,), generator=generator)
    minorities = min(classes, 5)
    shares = torch.tensor([0.85, *(0.15 * 0.5**j for j in range(minorities))])
    cluster = torch.multinomial(shares, n, replacement=True, generator=generator)
    strength = torch.where(cluster == minorities, 0.0, 4.0)
    taken_for = torch.nn.functional.one_hot((labels + cluster) % classes, classes)
    logits = strength[:, None] * taken_for + 0.5 * torch.randn(n, classes, generator=generator)
    return logits.softmax(1), labels


def first_stage(x: torch.Tensor, y: torch.Tensor) -> ClusterPartition:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        return separate(x, y, k_max=K_MAX)


def stage_one_ratios(classes: int, repetitions: int) -> list[float]:
    """Time of ours divided by that of scikit-learn's silhouettes, per repetition."""
    x, y = outputs(classes, EXAMPLES)
    found = first_stage(x, y)
    some = (y == 0).nonzero().flatten()[:TIMED_BY_SKLEARN]
    points, clusters = x[some].numpy(), found.clusters[some].numpy()
    work = (K_MAX - 1) * float((torch.bincount(y) / TIMED_BY_SKLEARN).square().sum())
    rows = []
    for _ in range(repetitions):
        peer = min(cpu_seconds(lambda: silhouette_score(points, clusters)) for _ in range(3)) * work
        rows.append((cpu_seconds(lambda: first_stage(x, y)), peer))
    ours, peer = (statistics.median(column) for column in zip(*rows, strict=True))
    chosen = {label: separation.k for label, separation in found.classes.items()}
    print(f"{classes} classes: ours {ours:.2f} s, scikit-learn {peer:.0f} s (extrapolated); clusters {chosen}")
    return [mine / theirs for mine, theirs in rows]


def peak_of_stage_one(classes: int) -> float:
    """MiB that the first stage needs on top of what the imports took, measured in a process of its own."""
    command = [sys.executable, __file__, "--peak-of", str(classes)]
    found = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    print(f"{classes} classes: {found:.0f} MiB on top of the imports")
    return found


def print_peak(classes: int) -> None:
    """Print the MiB by which the peak of this process grows through data and first stage."""
    first_stage(*outputs(3, 300))
    before = peak_memory()
    first_stage(*outputs(classes, EXAMPLES))
    print(peak_memory() - before)


def weights_by_scanning(groups: dict[tuple[int, int], list[int]], n: int) -> list[float]:
    """A weight for each example, whose group is found by looking through the lists."""
    weights = []
    for example in range(n):
        for members in groups.values():
            if example in members:
                weights.append(1 / len(members))
                break
    return weights


def sampling_ratios(repetitions: int) -> tuple[list[float], list[float]]:
    """Time of `sampling_probabilities` divided by that of the scan, and by its own on half as many examples."""

    def example(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        labels = (torch.rand(n, generator=generator) < 0.15).long()
        return labels, (torch.rand(n, generator=generator) < torch.where(labels == 1, 0.06, 0.48)).long()

    def probabilities(labels: torch.Tensor, clusters: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: sampling_probabilities(labels, clusters, {0: 1.0, 1: 2.0})

    groups: dict[tuple[int, int], list[int]] = {}
    for position, (label, cluster) in enumerate(zip(*(v.tolist() for v in example(TIMED_BY_SCANNING)), strict=True)):
        groups.setdefault((label, cluster), []).append(position)
    whole, doubled = example(CELEBA), example(2 * CELEBA)
    rows = []
    for _ in range(repetitions + 1):
        scan = cpu_seconds(lambda: weights_by_scanning(groups, TIMED_BY_SCANNING)) * (CELEBA / TIMED_BY_SCANNING) ** 2
        rows.append((cpu_seconds(probabilities(*whole), 20), cpu_seconds(probabilities(*doubled), 20), scan))
    ours, _, scan = (statistics.median(column) for column in zip(*rows[1:], strict=True))
    print(f"sampling probabilities: ours {1e3 * ours:.1f} ms, scan {scan:.0f} s (extrapolated)")
    return [ours / scan for ours, _, scan in rows[1:]], [twice / ours for ours, twice, _ in rows[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--peak-of", type=int, help="only print the peak of the first stage for so many classes")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if chosen.peak_of is not None:
            print_peak(chosen.peak_of)
            return
        ratios = []
        for classes in CLASSES:
            peer = "scikit-learn silhouette_score"
            values = stage_one_ratios(classes, chosen.repetitions)
            ratios.append(Ratio.over(f"time of stage 1 / {peer} ({classes} classes)", values, 0.01, peer))
            peak = peak_of_stage_one(classes) / 2048
            ratios.append(Ratio(f"memory of stage 1 / 2 GiB ({classes} classes)", peak, 1.0, "2 GiB"))
        against_scan, against_half = sampling_ratios(chosen.repetitions)
        ratios += [
            Ratio.over("time of sampling probabilities / scan of groups", against_scan, 0.01, "scan of groups"),
            Ratio.over("sampling probabilities of 2n / of n examples", against_half, 2.5, "half the examples"),
        ]
    for ratio in ratios:
        print(f"{ratio.name}: {ratio.value:.6f}, target {ratio.target}, met: {ratio.met}")
    print(write_benchmark("spare_stage1", ratios, chosen.results))


if __name__ == "__main__":
    main()
