"""How much faster 50 clients are personalized by the executor that `auto` picks than one by one.

Real MNIST painted in two colours, 50 clients of five classes, the small network of the CPU tables, five epochs of
fine-tuning with both regularisers (adversarial examples crafted on the way) for every client. One by one is the serial
executor, once with one torch thread and once with two; the faster of both counts. The ways take turns, each in a
process of its own, from the start of `personalize` to its end, so what `auto` spends on measuring is included. Ratios
are taken within a pass. Personal models must be the same: the largest difference of a weight, over the largest weight.

Run: ``python benchmarks/personalization.py``; the data are those of ``holdfast data get mnist``. Writes
results/benchmarks/personalization.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from holdfast.data import load_federation
from holdfast.federated import Rounds, personalize
from holdfast.federated.personalization import Transferability
from holdfast.models import build
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark

CLIENTS = 50
WAYS = {"auto": ("auto", 2), "one by one": ("serial", 1), "one by one, two threads": ("serial", 2)}


def tune(executor: str, threads: int, file: Path) -> None:
    """Personalize everybody and save the personal models."""
    torch.set_num_threads(threads)
    clients = load_federation("painted-mnist", source="t10k", clients=CLIENTS)
    shared = build("cnn-28-small", clients.input_shape, clients.classes, seed=0)
    settings = Rounds(executor=executor, optimizer="adam", batch_size=32, learning_rate=1e-3, seed=0)
    method = Transferability(adversarial=1.0, weights=1.0, epsilon=0.1, search=False, epochs=5)
    started = time.perf_counter()
    found = personalize(clients, shared, settings, [method])
    seconds = time.perf_counter() - started
    rows = found.runtime.personal(method.label, torch.arange(CLIENTS), found.weights)
    save_file({"rows": rows.contiguous()}, file)
    print(json.dumps({"seconds": seconds}))


def measured(way: str, folder: Path) -> tuple[float, torch.Tensor]:
    """Seconds and personal models of one way, in a process of its own."""
    executor, threads = WAYS[way]
    file = folder / f"{way}.safetensors"
    command = [sys.executable, __file__, "--executor", executor, "--threads", str(threads), "--file", str(file)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return float(json.loads(said.stdout.splitlines()[-1])["seconds"]), load_file(file)["rows"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--executor", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.executor:
        tune(chosen.executor, chosen.threads, chosen.file)
        return
    quotients, differences = [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(chosen.passes):
            order = list(WAYS)[turn % 3 :] + list(WAYS)[: turn % 3]
            found = {way: measured(way, Path(folder)) for way in order}
            (fast, rows), (slow, expected) = (
                found["auto"],
                min((found[way] for way in WAYS if way != "auto"), key=lambda one: one[0]),
            )
            quotients.append(slow / fast)
            differences.append(float((rows - expected).abs().max() / expected.abs().max()))
            print(
                ", ".join(f"{way} {seconds:.1f} s" for way, (seconds, _) in found.items()), f"ratio {slow / fast:.2f}"
            )
    ratios = [
        Ratio.over("speed / one by one", quotients, 1.7, "the serial executor", "higher"),
        Ratio("largest difference of a weight / largest weight", max(differences), 1e-3, "the serial executor"),
    ]
    print(write_benchmark("personalization", ratios, chosen.results))


if __name__ == "__main__":
    main()
