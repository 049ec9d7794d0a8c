"""The loop one would write by hand: torch.optim and state dicts, the cohort split over one or more processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters
from workload import Job, Record, Workload, current_job, flat


@dataclass(frozen=True)
class Shared:
    """What the processes have in common.

    Attributes:
        job: which run it is.
        workload: what is trained.
        sums: for each weight a shared tensor with one sum per process.
        personal: shared personal weights (clients, parameters), for Ditto.
        barrier: where processes wait for each other.
    """

    job: Job
    workload: Workload
    sums: dict[str, Tensor]
    personal: Tensor | None
    barrier: Any


def federated_rounds(rank: int, shared: Shared, record: Record | None = None) -> nn.Module:
    """Train this process's clients in every round; add up, wait for the others, average. One process has the record."""
    job, workload, sums, personal = shared.job, shared.workload, shared.sums, shared.personal
    torch.set_num_threads(1)
    model, own = workload.new_model(), workload.new_model()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    clients = {k: workload.client(k) for k in range(rank, workload.clients, job.processes)}
    for _ in range(job.rounds):
        for total in sums.values():
            total[rank] = 0
        for k, (x, y) in clients.items():
            model.load_state_dict(state)
            workload.train(model, x, y)
            for name, value in model.state_dict().items():
                sums[name][rank] += value
            if personal is not None:
                vector_to_parameters(personal[k].clone(), own.parameters())
                workload.train(own, x, y, towards=state)
                personal[k] = flat(own)
        shared.barrier.wait()
        state = {name: (total.sum(0) / workload.clients).to(workload.dtype) for name, total in sums.items()}
        shared.barrier.wait()
        if record is not None:
            record.round_ended()
    model.load_state_dict(state)
    return model


def main() -> None:
    job, workload = current_job()
    context = mp.get_context("fork")
    model = workload.new_model()
    record = Record.of(model)
    sums = {
        name: torch.zeros(job.processes, *value.shape, dtype=torch.float64).share_memory_()
        for name, value in model.state_dict().items()
    }
    personal = flat(model).repeat(workload.clients, 1).share_memory_() if workload.ditto else None
    shared = Shared(job, workload, sums, personal, context.Barrier(job.processes))
    others = [context.Process(target=federated_rounds, args=(rank, shared)) for rank in range(1, job.processes)]
    for other in others:
        other.start()
    model = federated_rounds(0, shared, record)
    for other in others:
        other.join()
    record.write(job, flat(model), personal)


if __name__ == "__main__":
    main()
