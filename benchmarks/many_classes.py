"""`holdfast fit` with very many classes: what a checkpoint, an epoch's record and the page take, epoch by epoch.

Data are made here: classes around random centres in 32 dimensions, read by the command line from an ``.npz``. Sizes are
of the files that the run writes; the largest memory is the process's own (VmHWM). Each case runs in a process of its
own.

Run: ``python benchmarks/many_classes.py``, some minutes. Writes results/benchmarks/sizes/many_classes.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.cli.main import main as holdfast
from holdfast.provenance import machine
from holdfast.training.run import Run

#: Classes, examples of each, epochs.
CASES = ((1_000, 20, 30), (10_000, 10, 3))


def write_data(path: Path, classes: int, each: int) -> None:
    """Examples around a centre per class."""
    stream = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    inputs = stream.normal(size=(classes, 32))[labels] + 0.7 * stream.normal(size=(len(labels), 32))
    order = stream.permutation(len(labels))
    np.savez(path, inputs=inputs[order].astype(np.float32), labels=labels[order])


def alone(classes: int, each: int, epochs: int) -> dict[str, Any]:
    """One run of the command in this process, with the size of every checkpoint."""
    sizes: list[int] = []
    save = Run.save_checkpoint

    def counted(run: Run, state: dict[str, Any], name: str = "last") -> None:
        save(run, state, name)
        sizes.append((run.path / "checkpoints" / f"{name}.safetensors").stat().st_size)

    Run.save_checkpoint = counted  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder) / "data.npz", Path(folder) / "run"
        write_data(data, classes, each)
        typed = ["--data", str(data), "--model", "linear", "--learning-rate", "0.5", "--batch-size", "256"]
        code = holdfast(["fit", *typed, "--epochs", str(epochs), "--checkpoint-seconds", "100000", "--out", str(run)])
        assert code == 0, code
        lines = [len(line) for line in (run / "metrics.jsonl").read_bytes().splitlines() if b'"event": "epoch"' in line]
        files = {file.name: file.stat().st_size for file in run.iterdir() if file.is_file() and file.stat().st_size}
        tables = {f"tables/{file.name}": file.stat().st_size for file in (run / "tables").iterdir()}
        test = json.loads((run / "results.json").read_text())["test"]
    status = Path("/proc/self/status").read_text().splitlines()
    peak = int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024
    return {
        "classes": classes,
        "examples": classes * each,
        "epochs": epochs,
        "checkpoint_bytes_by_epoch": sizes,
        "epoch_record_bytes": lines,
        "files": {**files, **tables},
        "test_accuracy": test["correct"] / test["count"],
        "peak_memory_bytes": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--alone", type=int, nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(json.dumps(alone(*chosen.alone)))
        return
    rows = []
    for case in CASES:
        command = [sys.executable, __file__, "--alone", *map(str, case)]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        rows.append(dict(json.loads(found.stdout.splitlines()[-1])))
        sizes, row = rows[-1]["checkpoint_bytes_by_epoch"], rows[-1]
        print(
            f"{row['classes']:,} classes, {row['epochs']} epochs: checkpoint {sizes[0]:,} to {sizes[-1]:,} bytes, an "
            f"epoch's record at most {max(row['epoch_record_bytes']):,}, page {row['files']['report.html']:,}, "
            f"peak {row['peak_memory_bytes'] / 1e6:,.0f} MB, test accuracy {row['test_accuracy']:.1%}"
        )
    stored = {"machine": machine(), "cases": rows}
    (chosen.results / "benchmarks" / "sizes" / "many_classes.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
