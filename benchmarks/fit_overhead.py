"""What `fit` costs on top of the training itself: against a bare PyTorch loop and against a DataLoader.

The same model, data, batch size, optimizer and number of steps in one process. Each repetition times the three loops
one after the other, in rotating order, and ratios are taken within a repetition, so a busy machine disturbs all three
alike; reported are the median ratio and the spread of that median over bootstrap draws of the repetitions. Targets:
`fit` takes at most 1.05 times the bare loop, and a default DataLoader at least 1.5 times `fit`. A DataLoader's cost is
per example, so it matters less the more a model computes per example: other cases are measured too, with target 1.

Run: ``python benchmarks/fit_overhead.py``. Writes results/benchmarks/fit_overhead.json. With ``--profile`` it prints
instead what each part of a step takes that the bare loop has otherwise or not at all, and the rest of `fit`.
"""

from __future__ import annotations

import argparse
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from holdfast.data import Examples, Splits
from holdfast.models import build
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark
from holdfast.training import Curator, Training, fit
from holdfast.training.objective import CrossEntropy, Forward
from holdfast.training.optimizer_steps import OptimizerSteps
from holdfast.training.running_mean import RunningMean

EPOCHS = 1
RATE = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}


@dataclass(frozen=True)
class Case:
    """A model, the shape of its inputs, a batch size, and how many examples to train on."""

    model: str
    shape: tuple[int, ...]
    batch: int
    examples: int

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Random inputs and labels."""
        generator = torch.Generator().manual_seed(0)
        inputs = torch.rand(self.examples, *self.shape, generator=generator)
        return inputs, torch.randint(2, (self.examples,), generator=generator)

    def new_model(self) -> torch.nn.Module:
        """The model before training."""
        return build(self.model, self.shape, 2, seed=0)


HEADLINE = Case("mlp", (3, 10, 10), 256, 51_200)
OTHERS = (
    Case("mlp", (3, 10, 10), 128, 25_600),
    Case("mlp", (3, 10, 10), 32, 38_400),
    Case("lenet5", (3, 28, 28), 128, 12_800),
)


def bare_loop(case: Case, x: torch.Tensor, y: torch.Tensor) -> None:
    """The loop one would write by hand for data in memory: index, forward, backward, step."""
    model = case.new_model().train()
    optimizer = torch.optim.SGD(model.parameters(), **RATE, fused=True)
    for _ in range(EPOCHS):
        order = torch.randperm(len(x))
        for start in range(0, len(x), case.batch):
            chosen = order[start : start + case.batch]
            loss = F.cross_entropy(model(x[chosen]), y[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


def loader_loop(case: Case, x: torch.Tensor, y: torch.Tensor) -> None:
    """The loop of the tutorials: a DataLoader with default settings."""
    model = case.new_model().train()
    optimizer = torch.optim.SGD(model.parameters(), **RATE, fused=True)
    loader = DataLoader(TensorDataset(x, y), batch_size=case.batch, shuffle=True)
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


def fit_loop(case: Case, x: torch.Tensor, y: torch.Tensor) -> None:
    """`fit` with plain shuffling; validation and test sets of eight examples, so that the training is what is timed."""
    train, rest = Examples.of(x, y), Examples.of(x[:8], y[:8])
    settings = Training(
        epochs=EPOCHS,
        batch_size=case.batch,
        learning_rate=RATE["lr"],
        momentum=RATE["momentum"],
        weight_decay=RATE["weight_decay"],
    )
    fit(case.new_model(), Splits("bench", train, rest, rest), None, settings)


LOOPS: dict[str, Callable[[Case, torch.Tensor, torch.Tensor], None]] = {
    "bare": bare_loop,
    "fit": fit_loop,
    "loader": loader_loop,
}


def measure(case: Case, repetitions: int) -> list[dict[str, float]]:
    """CPU seconds of each loop in each repetition."""
    x, y = case.data()
    rows = []
    for number in range(repetitions + 1):
        names = list(LOOPS)
        row = {}
        for name in [*names[number % 3 :], *names[: number % 3]]:
            started = time.process_time()
            LOOPS[name](case, x, y)
            row[name] = time.process_time() - started
        rows.append(row)
    steps = EPOCHS * case.examples // case.batch
    medians = {name: 1e6 * statistics.median(row[name] for row in rows[1:]) / steps for name in LOOPS}
    shown = ", ".join(f"{name} {value:.0f}" for name, value in medians.items())
    print(f"{case.model}, batches of {case.batch}: microseconds of CPU per step: {shown}")
    return rows[1:]


def median_ratio(rows: list[dict[str, float]], over: str, under: str) -> tuple[float, float]:
    """Median of the ratio within repetitions, and the bootstrap standard deviation of that median."""
    values = np.array([row[over] / row[under] for row in rows])
    draws = np.random.default_rng(0).choice(values, (1000, len(values)))
    return float(np.median(values)), float(np.median(draws, axis=1).std())


def profile(case: Case) -> None:
    """Microseconds of CPU of the parts of a step, each timed by itself in turns, best of several rounds."""
    (x, y), model = case.data(), case.new_model().train()
    curator = Curator(Examples.of(x, y), batch_size=case.batch)
    curator.start(model)
    batch, order, losses = next(iter(curator)), torch.randperm(len(x)), RunningMean()
    optimizer = torch.optim.SGD(model.parameters(), **RATE, fused=True)
    steps, objective = OptimizerSteps(model, optimizer, Training()), CrossEntropy()
    loss = F.cross_entropy(model(batch.inputs), batch.labels)

    def index() -> None:
        for start in range(0, len(x), case.batch):
            chosen = order[start : start + case.batch]
            x[chosen], y[chosen]

    def hand_out() -> None:
        for _ in curator:
            pass

    def bare() -> None:
        loss = F.cross_entropy(model(batch.inputs), batch.labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def report() -> None:
        curator._epoch_left = case.examples  # so that the epoch never ends
        curator.end_step(model, optimizer)

    def nothing() -> None:
        """What the bare loop does instead."""

    count = len(curator)
    parts: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
        "a mini-batch": (index, hand_out, 1),
        "its loss": (
            lambda: F.cross_entropy(model(batch.inputs), batch.labels),
            lambda: objective(Forward(model, batch, weighted=False, clock=curator.clock)),
            count,
        ),
        "loss, gradient and step": (
            bare,
            lambda: steps.take(objective, batch, weighted=False, clock=curator.clock),
            count,
        ),
        "clock and policies": (nothing, report, count),
        "mean loss": (nothing, lambda: losses.add(loss, case.batch), count),
    }
    print(f"{case.model}, batches of {case.batch}: microseconds in the bare loop and in fit")
    for name, (theirs, ours, number) in parts.items():
        rounds = [
            [timeit.timeit(work, timer=time.process_time, number=number) for work in (theirs, ours)] for _ in range(21)
        ]
        best = [1e6 * min(seconds) / count for seconds in zip(*rounds, strict=True)]
        print(f"  {name}: {best[0]:.1f}, {best[1]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.profile:
        for case in (HEADLINE, *OTHERS[:-1]):  # those whose steps are so short that parts can be told
            profile(case)
        return
    ratios = []
    for case in (HEADLINE, *OTHERS):
        rows = measure(case, chosen.repetitions)
        name = f"{case.model}, batch {case.batch}"
        target = case is HEADLINE
        overhead, spread = median_ratio(rows, "fit", "bare")
        ratios.append(Ratio(f"fit / bare loop ({name})", overhead, 1.05, "bare PyTorch loop", spread, "lower"))
        gain, spread = median_ratio(rows, "loader", "fit")
        least = 1.5 if target else 1.0
        ratios.append(Ratio(f"DataLoader / fit ({name})", gain, least, "torch DataLoader", spread, "higher"))
    for ratio in ratios:
        print(f"{ratio.name}: {ratio.value:.3f} +- {ratio.spread:.3f}, target {ratio.target}, met: {ratio.met}")
    print(write_benchmark("fit_overhead", ratios, chosen.results))


if __name__ == "__main__":
    main()
