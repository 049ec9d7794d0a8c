"""What `fit` costs on top of the training itself: against a bare PyTorch loop and against a DataLoader.

The same model, data, batch size, order of magnitude of steps and optimizer, in one process, in turn: each repetition
times the three loops one after the other, and the ratios are taken within a repetition, so a busy machine disturbs all
three alike. Targets: `fit` takes at most 1.05 times the bare loop, and a default DataLoader at least 1.5 times `fit`.

Run: ``python benchmarks/fit_overhead.py``. Writes results/benchmarks/fit_overhead.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from holdfast.data import Examples, Splits
from holdfast.models import build
from holdfast.papers.benchmarks import Ratio, write_benchmark
from holdfast.training import Training, fit

BATCH = 32
EPOCHS = 2
SHAPE = (3, 10, 10)
RATE = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}


def make_data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, *SHAPE, generator=generator), torch.randint(2, (n,), generator=generator)


def new_model() -> torch.nn.Module:
    return build("mlp", SHAPE, 2, seed=0)


def bare_loop(x: torch.Tensor, y: torch.Tensor) -> None:
    """The loop one would write by hand for data in memory: index, forward, backward, step."""
    model = new_model().train()
    optimizer = torch.optim.SGD(model.parameters(), **RATE)
    for _ in range(EPOCHS):
        order = torch.randperm(len(x))
        for start in range(0, len(x), BATCH):
            chosen = order[start : start + BATCH]
            loss = F.cross_entropy(model(x[chosen]), y[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


def loader_loop(x: torch.Tensor, y: torch.Tensor) -> None:
    """The loop of the tutorials: a DataLoader with default settings."""
    model = new_model().train()
    optimizer = torch.optim.SGD(model.parameters(), **RATE)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


def fit_loop(x: torch.Tensor, y: torch.Tensor) -> None:
    """`fit` with plain shuffling; validation and test sets of a batch each, so that the training is what is timed."""
    train, rest = Examples.of(x, y), Examples.of(x[:BATCH], y[:BATCH])
    settings = Training(
        epochs=EPOCHS,
        batch_size=BATCH,
        learning_rate=RATE["lr"],
        momentum=RATE["momentum"],
        weight_decay=RATE["weight_decay"],
    )
    fit(new_model(), Splits("bench", train, rest, rest), None, settings)


def seconds(loop: Callable[[torch.Tensor, torch.Tensor], None], x: torch.Tensor, y: torch.Tensor) -> float:
    started = time.process_time()
    loop(x, y)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=32_000)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    x, y = make_data(chosen.examples)
    for loop in (bare_loop, fit_loop, loader_loop):
        loop(x[:2000], y[:2000])
    rows = []
    for number in range(chosen.repetitions):
        order = [("bare", bare_loop), ("fit", fit_loop), ("loader", loader_loop)]
        turn = number % 3
        rows.append({name: seconds(loop, x, y) for name, loop in [*order[turn:], *order[:turn]]})
        print("  ".join(f"{name} {value:.2f} s" for name, value in sorted(rows[-1].items())))
    steps = EPOCHS * chosen.examples // BATCH
    for name in ("bare", "fit", "loader"):
        best = min(row[name] for row in rows)
        print(f"{name:>7}: {1e6 * best / steps:6.1f} microseconds of CPU per step at best")
    ratios = [
        _ratio("fit / bare loop", [row["fit"] / row["bare"] for row in rows], 1.05, "bare PyTorch loop", "lower"),
        _ratio("DataLoader / fit", [row["loader"] / row["fit"] for row in rows], 1.5, "torch DataLoader", "higher"),
    ]
    for ratio in ratios:
        print(f"{ratio.name}: {ratio.value:.3f} (spread {ratio.spread:.3f}), target {ratio.target}, met: {ratio.met}")
    write_benchmark("fit_overhead", ratios, chosen.results)


def _ratio(name: str, values: list[float], target: float, peer: str, better: str) -> Ratio:
    return Ratio(name, statistics.median(values), target, peer, statistics.stdev(values), better)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
