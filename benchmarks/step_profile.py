"""Where the time of a local step goes, in the loop one would write by hand and with clients stacked.

The workloads are those of ``benchmarks/federated.py``, in one process with one thread. Every operator's own time is
summed by kind, per client and step; what is left of the whole is Python, autograd and calls. Two copies of the same
machine differ by a tenth, so compare within one run.

Run: ``python -m benchmarks.step_profile transformer gru``. Prints a table and writes nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from holdfast.federated.engine import products
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.draws import Draws
from holdfast.federated.engine.network import Network
from holdfast.primitives.memory import keep_freed_memory

sys.path.insert(0, str(Path(__file__).parent / "federated"))
from workload import RATE, Workload, find_workload

CLIENTS, REPEATS = 8, 5
#: Beginnings of operators' names, by what they are; the first that fits.
KINDS = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear"),
    "attention": ("aten::_scaled_dot_product", "aten::_softmax", "aten::softmax"),
    "norms": ("aten::native_layer_norm",),
    "recurrence": ("aten::sigmoid", "aten::tanh", "aten::lerp", "aten::addcmul", "aten::mkldnn_rnn", "aten::_thnn"),
    "sums, copies and other arithmetic": ("aten::",),
}


def loop(workload: Workload) -> Callable[[], None]:
    """One local epoch of every client, by hand."""
    model = workload.new_model()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    clients = [workload.client(k) for k in range(CLIENTS)]

    def run() -> None:
        for inputs, labels in clients:
            model.load_state_dict(state)
            workload.train(model, inputs, labels)

    return run


def stacked(workload: Workload, fast: bool) -> Callable[[], None]:
    """The same for all clients at once, with or without oneDNN for large products."""
    network = Network(workload.new_model())
    data = [workload.client(k) for k in range(CLIENTS)]
    inputs, labels = (torch.stack(parts) for parts in zip(*data, strict=True))
    network.study(inputs.flatten(0, 1))
    ids = torch.arange(CLIENTS)

    def batch(start: int) -> ClientBatch:
        rows = slice(start, start + workload.batch)
        weights = torch.full((CLIENTS, workload.batch), 1 / workload.batch)
        return ClientBatch(inputs[:, rows], labels[:, rows], weights, ids, ids, ids, True)

    def run() -> None:
        models: Tensor = network.initial.repeat(CLIENTS, 1)
        known = products._one_dnn_is_faster
        if not fast:
            products._one_dnn_is_faster = lambda: False  # type: ignore[assignment]
        draws = Draws(0, "shared", tuple(range(CLIENTS)), (0,) * CLIENTS)
        for start in range(0, workload.examples, workload.batch):
            network.sgd_step(models, batch(start), RATE, None, draws)
        products._one_dnn_is_faster = known

    return run


def parts_of(run: Callable[[], None], steps: int) -> dict[str, float]:
    """Microseconds per client and step, by kind, and of the whole."""
    run()
    whole = math.inf
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        whole = min(whole, time.process_time() - start)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run()
    found: dict[str, float] = defaultdict(float)
    for event in profiled.key_averages():
        kind = next((kind for kind, names in KINDS.items() if event.key.startswith(names)), None)
        if kind is not None:
            found[kind] += event.self_cpu_time_total / steps
    found["the whole, without the profiler"] = 1e6 * whole / steps
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["transformer", "gru"])
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in parser.parse_args().workloads:
        workload = replace(find_workload(name), clients=CLIENTS)
        steps = CLIENTS * math.ceil(workload.examples / workload.batch)
        columns = {
            "by hand": parts_of(loop(workload), steps),
            "stacked, MKL": parts_of(stacked(workload, False), steps),
            "stacked": parts_of(stacked(workload, True), steps),
        }
        print(f"\n| {name}, µs per client and step | " + " | ".join(columns) + " |\n| --- | --- | --- | --- |")
        for kind in (*KINDS, "the whole, without the profiler"):
            if any(column[kind] for column in columns.values()):
                print(f"| {kind} | " + " | ".join(f"{column[kind]:,.0f}" for column in columns.values()) + " |")


if __name__ == "__main__":
    main()
