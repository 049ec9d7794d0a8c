"""How fast data are read: 5,000 JPEGs into batches, against a plain torch DataLoader over the same files.

The files are images of CIFAR-10 scaled up to 256 x 256 and saved with quality 90. Ours decodes them into memory once
(`decode_all`) and gathers all of them in normalised batches; the DataLoader opens, resizes and normalises each when it
is asked for, with as many processes as we use threads. Both end with the same floats, which is checked. Every way runs
in processes of its own, in turns whose order changes; ratios are taken within a turn, reported are their median and
sample standard deviation. Clock time, as both use two cores, and processor time of all processes of a way beside it.
Memory is the largest sum of proportional sizes (PSS) of a way's processes, sampled, so that what they share counts
once; ours should be the DataLoader's and the decoded images, no more. These then serve every further epoch: the second
pass is measured too. Both ways keep freed memory, as every command does, and compute with one thread of torch.

Run: ``python benchmarks/reading.py --root DATA``, five minutes. Writes results/benchmarks/reading.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from holdfast.data.inputs import TensorInputs
from holdfast.data.readers.image_files import decode_all, image_memory
from holdfast.data.readers.images import ImageReader
from holdfast.data.sets.images.cifar import read_parquet
from holdfast.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalise
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark
from holdfast.primitives.memory import keep_freed_memory

IMAGES, STORED, SIDE, BATCH, QUALITY = 5_000, 256, 224, 128, 90
WAYS = ("ours", "loader")
MiB = 2**20


def write_images(root: Path, folder: Path) -> None:
    """The JPEGs that are read."""
    pixels, _ = read_parquet(root / "cifar10" / "test.parquet")
    for number in range(IMAGES):
        image = Image.fromarray(pixels[number].transpose(1, 2, 0)).resize((STORED, STORED), Image.Resampling.BICUBIC)
        image.save(folder / f"{number:05d}.jpg", quality=QUALITY)


class PlainImages(Dataset[torch.Tensor]):
    """What one writes by hand: open, resize, to floats, normalise."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, position: int) -> torch.Tensor:
        """One image, (3, side, side)."""
        with Image.open(self.paths[position]) as file:
            image = file.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().div_(255).sub_(self.mean).div_(self.std)


def loader_passes(paths: list[Path], workers: int) -> Iterator[Iterator[torch.Tensor]]:
    """Batches of every pass, by a DataLoader."""
    loader = DataLoader(PlainImages(paths), batch_size=BATCH, num_workers=workers)
    while True:
        yield iter(loader)


def our_passes(paths: list[Path], workers: int) -> Iterator[Iterator[torch.Tensor]]:
    """Batches of every pass, from one tensor that the first pass fills."""
    inputs: list[TensorInputs] = []

    def batches() -> Iterator[torch.Tensor]:
        if not inputs:
            pixels, failed = decode_all(paths, ImageReader(resize=SIDE, crop=None), workers)
            if failed:
                raise SystemExit(failed[0][1])
            inputs.append(TensorInputs(pixels, Normalise(IMAGENET_MEAN, IMAGENET_STD)))
        for start in range(0, len(paths), BATCH):
            batch = inputs[0].gather(torch.arange(start, min(start + BATCH, len(paths))))
            assert isinstance(batch, torch.Tensor)
            yield batch

    while True:
        yield batches()


PASSES: dict[str, Callable[[list[Path], int], Iterator[Iterator[torch.Tensor]]]] = {
    "ours": our_passes,
    "loader": loader_passes,
}


def alone(way: str, folder: Path, workers: int) -> dict[str, float]:
    """Two passes over all files in this process: seconds of each, processor seconds of the first, and a checksum."""
    keep_freed_memory()
    torch.set_num_threads(1)
    paths = sorted(folder.iterdir())
    passes = PASSES[way](paths, workers)
    measured = {"checksum": 0.0}
    for name in ("first", "second"):
        spent, started = sum(os.times()[:4]), time.perf_counter()
        for batch in next(passes):
            measured["checksum"] += float(batch[:, :, ::32, ::32].sum())
        measured[name] = time.perf_counter() - started
        measured[f"{name} processor"] = sum(os.times()[:4]) - spent
    return measured


def measured(way: str, folder: Path, workers: int) -> dict[str, float]:
    """What a fresh process says, and the most memory that it and its children had, in MiB."""
    command = [sys.executable, __file__, "--alone", way, str(folder), str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, proportional_size(process.pid))
            time.sleep(0.25)
        assert process.stdout is not None
        answer = process.stdout.read()
    return {**json.loads(answer.splitlines()[-1]), "memory": peak}


def proportional_size(pid: int) -> float:
    """PSS of a process and its children in MiB; those that just ended count nothing."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        own = int(rollup.split("\nPss:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0
    return own + sum(proportional_size(int(child)) for child in children)


def image_ratios(folder: Path, repetitions: int) -> list[Ratio]:
    """Ours over the DataLoader's, with two workers and with none."""
    ratios = []
    for workers in (2, 0):
        rows: list[dict[str, dict[str, float]]] = []
        for turn in range(repetitions):
            order = WAYS if turn % 2 else tuple(reversed(WAYS))
            rows.append({way: measured(way, folder, workers) for way in order})
            sums = [rows[-1][way]["checksum"] for way in WAYS]
            if abs(sums[0] - sums[1]) > 1e-4 * abs(sums[1]):
                raise SystemExit(f"the two ways give different images: {sums}")
        for way in WAYS:
            shown = {key: statistics.median(row[way][key] for row in rows) for key in rows[0][way]}
            print(f"{workers} workers, {way}: " + ", ".join(f"{key} {value:.2f}" for key, value in shown.items()))
        name = f"{IMAGES:,} JPEGs, {workers} workers"
        peer = f"torch DataLoader with {workers} processes" if workers else "torch DataLoader without workers"
        for what, key, target in (
            ("time of reading", "first", 1.1),
            ("processor time of reading", "first processor", 1.1),
            ("time of a second epoch", "second", 0.5),
        ):
            values = [row["ours"][key] / row["loader"][key] for row in rows]
            ratios.append(Ratio.over(f"{what} ({name})", values, target, peer))
        decoded = image_memory(IMAGES, SIDE) / MiB
        more = [(row["ours"]["memory"] - row["loader"]["memory"]) / decoded for row in rows]
        ratios.append(Ratio.over(f"memory above the peer's / decoded images ({name})", more, 1.25, peer))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        way, folder, workers = chosen.alone
        print(json.dumps(alone(way, Path(folder), int(workers))))
        return
    with tempfile.TemporaryDirectory() as made:
        write_images(chosen.root, Path(made))
        size = sum(file.stat().st_size for file in Path(made).iterdir()) / MiB
        print(f"{size:.0f} MiB of JPEGs, {image_memory(IMAGES, SIDE) / MiB:.0f} MiB decoded")
        ratios = image_ratios(Path(made), chosen.repetitions)
    for ratio in ratios:
        print(f"{ratio.name}: {ratio.value:.3f} +- {ratio.spread}, target {ratio.target}, met: {ratio.met}")
    print(write_benchmark("reading", ratios, chosen.results))


if __name__ == "__main__":
    main()
