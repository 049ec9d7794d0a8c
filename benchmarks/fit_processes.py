"""Training and sweeps on several processes: two against one, one thread each.

- ``processes``: `fit` of a convolutional network (compute-bound) with two processes against one, one thread each;
  target: 1.7 times as fast. Beside it stand what the same machine gives others in the same turns: one process with two
  threads, and a plain loop in torch's DistributedDataParallel, whose two processes `fit`'s should not be slower than.
  Mini-batches have 256 examples; with 64, of which each process gets 32, `fit` reached 1.40 +- 0.04 and
  DistributedDataParallel 1.51 +- 0.03 on the same quiet machine: a step is then too short for what they exchange.
- ``sweep``: outputs of a million examples, sharded over two processes as policies' sweeps are, against one; target: at
  most .55 of the time.

Processes are started anew for each measurement and time themselves, so that starting them isn't counted. All keep
freed memory for themselves, as those of ``holdfast fit --processes`` do. Cases rotate within a repetition.

Run it alone on the machine: ``python -m benchmarks.fit_processes`` (about eight minutes). Writes
results/benchmarks/fit_processes.json.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data import Examples, Splits
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark
from holdfast.primitives.memory import keep_freed_memory
from holdfast.training import Training, fit
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.ranks import Ranks

EXAMPLES, WARM, BATCH, SWEPT = 8_192, 256, 256, 1_000_000
RATE = {"lr": 0.01, "momentum": 0.9}


def seconds_of(work: Callable[[], float], count: int, threads: int = 1) -> float:
    """The time that the first of `count` processes says the work took."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = context.Pipe(duplex=False)
        running = [
            context.Process(target=_measured, args=((rank, count), threads, f"{folder}/store", work, theirs))
            for rank in range(count)
        ]
        for process in running:
            process.start()
        theirs.close()
        for process in running:
            process.join()
        return float(ours.recv())


def _measured(place: tuple[int, int], threads: int, store: str, work: Callable[[], float], answer: Connection) -> None:
    rank, count = place
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(threads)
    keep_freed_memory()
    if count > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    seconds = work()
    if rank == 0:
        answer.send(seconds)
    Ranks.current().wait()
    if count > 1:
        # Else its threads are still there when the interpreter is not, and one that asks for it then takes the process
        # along: "terminate called without an active exception".
        dist.destroy_process_group()


def network() -> nn.Module:
    """A few convolutions without batch norm: a step takes some hundredths of a second on one core."""
    torch.manual_seed(0)
    widths, layers = (3, 32, 64, 64, 128), list[nn.Module]()
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * 4, 2))


def pictures(count: int) -> tuple[Tensor, Tensor]:
    """Noise with labels."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, 32, 32, generator=generator), torch.arange(count) % 2


def train_images() -> float:
    """Seconds that an epoch of `fit` trains for."""
    few, seconds = Examples.of(*pictures(8)), 0.0
    settings: Any = {"batch_size": BATCH, "select_by": "accuracy", "learning_rate": RATE["lr"]}
    for count in (WARM, EXAMPLES):
        splits = Splits("noise", Examples.of(*pictures(count)), few, few)
        seconds = fit(network(), splits, None, Training(epochs=1, **settings)).seconds["train"]
    return seconds


def train_images_by_ddp() -> float:
    """Seconds of an epoch of the loop one would write, with DistributedDataParallel where there are two processes."""
    seconds = 0.0
    for count in (WARM, EXAMPLES):
        x, y = pictures(count)
        model, ranks = network(), Ranks.current()
        optimizer = torch.optim.SGD(model.parameters(), **RATE, fused=True)
        wrapped = nn.parallel.DistributedDataParallel(model) if ranks.count > 1 else model
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        ranks.wait()
        started = time.perf_counter()
        for start in range(0, count, BATCH):
            chosen = order[start : start + BATCH][ranks.index :: ranks.count]
            loss = F.cross_entropy(wrapped(x[chosen]), y[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - started
    return seconds


def sweep_million() -> float:
    """Seconds for the outputs of a million rows of numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    examples, ranks = Examples.of(torch.randn(SWEPT, 32), torch.arange(SWEPT) % 10), Ranks.current()
    outputs = ModelOutputs(model, examples, ranks=ranks)
    outputs.sweep(torch.arange(2048), to_all=False)
    ranks.wait()
    started = time.perf_counter()
    outputs.sweep(torch.arange(SWEPT), to_all=False)
    return time.perf_counter() - started


def rotating(cases: dict[str, Callable[[], float]], repetitions: int) -> list[dict[str, float]]:
    """Seconds of each case in each repetition, in rotating order."""
    rows, names = list[dict[str, float]](), list(cases)
    for number in range(repetitions):
        turn = number % len(names)
        rows.append({name: cases[name]() for name in [*names[turn:], *names[:turn]]})
        print(", ".join(f"{name} {rows[-1][name]:.2f} s" for name in names), flush=True)
    return rows


def processes(repetitions: int) -> list[Ratio]:
    """Two processes against one, against one with two threads, and against DistributedDataParallel."""
    cases: dict[str, Callable[[], float]] = {
        "1 process": lambda: seconds_of(train_images, 1),
        "2 processes": lambda: seconds_of(train_images, 2),
        "1 process, 2 threads": lambda: seconds_of(train_images, 1, threads=2),
        "loop": lambda: seconds_of(train_images_by_ddp, 1),
        "loop, 2 processes": lambda: seconds_of(train_images_by_ddp, 2),
    }
    rows = rotating(cases, repetitions)

    def over(one: str, other: str) -> list[float]:
        return [row[one] / row[other] for row in rows]

    one, ddp = "fit with 1 process of 1 thread", "a plain loop in DistributedDataParallel"
    return [
        Ratio.over("speed of 2 processes", over("1 process", "2 processes"), 1.7, one, "higher"),
        Ratio.over("speed of 1 process with 2 threads", over("1 process", "1 process, 2 threads"), 0.0, one, "higher"),
        Ratio.over(
            "speed of 2 processes, DistributedDataParallel",
            over("loop", "loop, 2 processes"),
            0.0,
            "the plain loop with 1 process of 1 thread",
            "higher",
        ),
        Ratio.over("fit / loop (1 process)", over("1 process", "loop"), 1.05, "the plain loop"),
        Ratio.over("fit / loop (2 processes)", over("2 processes", "loop, 2 processes"), 1.05, ddp),
    ]


def sweep(repetitions: int) -> list[Ratio]:
    """A sweep over two processes against one."""
    cases: dict[str, Callable[[], float]] = {
        "1 process": lambda: seconds_of(sweep_million, 1),
        "2 processes": lambda: seconds_of(sweep_million, 2),
    }
    rows = rotating(cases, repetitions)
    name = "time of a sweep of a million examples over 2 processes"
    return [Ratio.over(name, [row["2 processes"] / row["1 process"] for row in rows], 0.55, "the same with 1 process")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    ratios = [*processes(chosen.repetitions), *sweep(chosen.repetitions)]
    for ratio in ratios:
        spread = "" if ratio.spread is None else f" +- {ratio.spread:.3f}"
        print(f"{ratio.name}: {ratio.value:.3f}{spread}, target {ratio.target}, met: {ratio.met}")
    print(write_benchmark("fit_processes", ratios, chosen.results))


if __name__ == "__main__":
    main()
