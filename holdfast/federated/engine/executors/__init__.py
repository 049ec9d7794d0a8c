"""Executors by name, and the choice of the fastest by measurement."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch

from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.executors.base import Executor, default_chunk
from holdfast.federated.engine.executors.inprocess import InProcess
from holdfast.federated.engine.executors.pool import WorkerPool
from holdfast.federated.engine.forks import run_apart
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.settings import ExecutorName, Rounds

__all__ = ["Executor", "ExecutorChoice", "InProcess", "WorkerPool", "choose", "default_chunk", "make_executor"]

_log = logging.getLogger(__name__)

#: Trial rounds of `choose`: clients (more where more are stacked), steps, and when it has seen enough.
_TRIAL_CLIENTS, _TRIAL_STEPS, _TRIAL_ROUNDS, _TRIAL_SECONDS = 8, 2, 6, 0.2
#: Handing work to processes costs about a millisecond per round; where a round takes so long, one process can't win.
_LONG_ROUND = 0.05


@dataclass(frozen=True)
class ExecutorChoice:
    """An executor, so that a resumed run uses the same.

    Attributes:
        name: how clients are run; ``flower`` where they are elsewhere.
        chunk: clients that are stacked.
    """

    name: Literal["serial", "batched", "pool", "flower"]
    chunk: int


def make_executor(runtime: ClientRuntime, choice: ExecutorChoice) -> Executor:
    """The executor that `choice` names."""
    if choice.name == "pool":
        return WorkerPool(runtime, choice.chunk, runtime.settings.workers)
    return InProcess(runtime, choice.chunk)


def choose(name: ExecutorName, training: LocalTraining, trial: Callable[[Rounds], ClientRuntime]) -> ExecutorChoice:
    """What to run clients with: as named, or for ``auto`` what is fastest on a trial round.

    Args:
        name: what was asked for.
        training: what clients train with.
        trial: makes a runtime like the real one, with the given settings, whose personal models may be spoilt; asked
            for ``auto`` only.

    Returns:
        The choice. With ``auto`` it depends on the machine, and so do results, by rounding.
    """
    settings = training.settings
    stacked = settings.chunk or default_chunk(training)
    way = training.study()
    if way.why and (name in ("auto", "batched") or (name == "pool" and (settings.chunk or 1) > 1)):
        _log.warning("%s, so clients are trained one after another", way.why)
    if name == "serial":
        return ExecutorChoice("serial", 1)
    if name == "batched":
        return ExecutorChoice("batched", stacked)
    if name == "pool":
        return ExecutorChoice("pool", settings.chunk or 1)
    runtime = trial(replace(settings, local_steps=_TRIAL_STEPS, local_epochs=None))
    candidates = [
        ExecutorChoice("pool", stacked),
        ExecutorChoice("pool", 1),
        ExecutorChoice("batched", stacked),
        ExecutorChoice("serial", 1),
    ]
    if training.network.device.type != "cpu":
        candidates = [candidate for candidate in candidates if candidate.name != "pool"]
    if way.name == "rows":
        candidates = [candidate for candidate in candidates if candidate.chunk == 1]
    times: dict[ExecutorChoice, float] = {}
    several = (settings.workers or os.cpu_count() or 1) > 1 and candidates[0].name == "pool"
    for candidate in candidates:
        best = min(times.values(), default=math.inf)
        hopeless = several and candidate.name != "pool" and best * settings.cohort > _LONG_ROUND
        if candidate not in times and not hopeless:
            measure = partial(_seconds, runtime, candidate, best)
            try:
                # Apart, so that this process stays fit for making workers.
                here = candidate.name == "pool" or candidates[0].name != "pool"
                times[candidate] = measure() if here else run_apart(measure)
            except Exception as error:  # if every way fails, the run itself shows it as it is
                _log.warning("the trial of %s failed: %s", candidate.name, error)
    if not times:
        return ExecutorChoice("serial", 1)
    return min(times, key=lambda candidate: times[candidate])


def _seconds(trial: ClientRuntime, choice: ExecutorChoice, best: float) -> float:
    """Per client, of the best of some short trial rounds; only the first where it gives no hope to beat `best`."""
    executor = make_executor(trial, choice)
    everybody = torch.arange(len(trial.clients))
    clients = everybody[: min(trial.settings.cohort, max(_TRIAL_CLIENTS, 2 * choice.chunk))]
    drawn = torch.zeros_like(everybody)
    received = torch.cat([trial.network.initial, torch.zeros_like(trial.network.initial)])[: trial.message]
    times: list[float] = []
    try:
        while len(times) < 2 or (len(times) < _TRIAL_ROUNDS and sum(times) < _TRIAL_SECONDS):
            start = time.perf_counter()
            executor.round(0, clients, drawn, received)
            times.append(time.perf_counter() - start)
            if times[0] > 4 * best * len(clients):
                break
    finally:
        executor.close()
    return min(times) / len(clients)
