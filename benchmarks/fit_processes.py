"""The parts of ``benchmarks/fit_scale.py`` that need several processes: training and sweeps, two against one.

- ``processes``: `fit` of a convolutional network (compute-bound) with two processes against one, one thread each;
  target: 1.7 times as fast. One process with two threads is reported beside it, without a target of ours: the same.
- ``sweep``: outputs of a million examples, sharded over two processes as policies' sweeps are, against one; target: at
  most .55 of the time.

Processes are started anew for each measurement and time themselves, so that starting them isn't counted.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from holdfast.data import Examples, Splits
from holdfast.papers.engine.benchmarks import Ratio
from holdfast.training import Training, fit
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.ranks import Ranks

EXAMPLES, BATCH, SWEPT = 768, 64, 1_000_000


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
        for process in running:
            process.join()
        return float(ours.recv())


def _measured(place: tuple[int, int], threads: int, store: str, work: Callable[[], float], answer: Connection) -> None:
    rank, count = place
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(threads)
    if count > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    seconds = work()
    if rank == 0:
        answer.send(seconds)
    Ranks.current().wait()


def network() -> nn.Module:
    """A few convolutions without batch norm: a step takes about a second on one core."""
    torch.manual_seed(0)
    widths, layers = (3, 32, 64, 64, 128), list[nn.Module]()
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * 4, 2))


def train_images() -> float:
    """Seconds that an epoch of `fit` trains for."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(EXAMPLES, 3, 32, 32, generator=generator), torch.arange(EXAMPLES) % 2
    train, few = Examples.of(inputs, labels), Examples.of(inputs[:8], labels[:8])
    settings: Any = {"batch_size": BATCH, "select_by": "accuracy", "learning_rate": 0.01}
    fit(network(), Splits("noise", train, few, few), None, Training(epochs=1, **settings))  # warms everything up
    return fit(network(), Splits("noise", train, few, few), None, Training(epochs=1, **settings)).seconds["train"]


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


def processes(repetitions: int, _: int) -> list[Ratio]:
    """Two processes against one, and against one with two threads."""
    times = [
        (seconds_of(train_images, 1), seconds_of(train_images, 2), seconds_of(train_images, 1, threads=2))
        for _ in range(repetitions)
    ]
    one = "fit with 1 process of 1 thread"
    return [
        Ratio.over("speed of 2 processes", [alone / two for alone, two, _ in times], 1.7, one, "higher"),
        Ratio.over("speed of 1 process with 2 threads", [alone / both for alone, _, both in times], 0.0, one, "higher"),
    ]


def sweep(repetitions: int, _: int) -> list[Ratio]:
    """A sweep over two processes against one."""
    times = [(seconds_of(sweep_million, 1), seconds_of(sweep_million, 2)) for _ in range(repetitions)]
    name = "time of a sweep of a million examples over 2 processes"
    return [Ratio.over(name, [two / alone for alone, two in times], 0.55, "the same with 1 process")]
