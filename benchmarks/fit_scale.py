"""Training at the size users have: reading ahead. One thread per process throughout.

A folder of 5,000 JPEG files of 128 x 128 pixels and a small convolutional network. `fit` with worker processes against
a plain loop over a torch DataLoader with the same reader, network, optimizer and number of workers; target: at most
1.05 times its time. Also `fit` as it is by default, with the decoded images in memory, and the curator in a plain loop.

Loops alternate within a repetition and ratios are taken within it. Training and sweeps on several processes are
measured by ``benchmarks/fit_processes.py``, memory of a million lazy examples by ``benchmarks/fit_memory.py``, and what
`fit` costs on data in memory by ``benchmarks/fit_overhead.py``.

Run it alone on the machine: ``python -m benchmarks.fit_scale``. Writes results/benchmarks/fit_scale.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from holdfast.data import Examples, Splits
from holdfast.data.inputs import Inputs, TensorInputs
from holdfast.data.own.image_inputs import reader_for
from holdfast.data.readers.image_files import decode_all
from holdfast.data.transforms import Normalise
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark
from holdfast.training import Curator, Training, fit

SIDE, IMAGES, BATCH, EPOCHS = 128, 5_000, 32, 1
RATE = {"lr": 0.01, "momentum": 0.9}


def small_network() -> nn.Module:
    """Three convolutions: decoding a picture costs about as much as training on it."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 2),
    )


class ImageFiles(Dataset[tuple[Tensor, int]]):
    """The files as a plain loop reads them, by the same reader."""

    def __init__(self, files: list[Path]) -> None:
        self.files, self.reader = files, reader_for(SIDE)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return self.reader(self.files[position]), position % 2


class ImageCase:
    """A folder of pictures, and the loops that train on it."""

    def __init__(self, folder: Path, count: int, workers: int) -> None:
        self.files, self.workers = list(written(folder, count)), workers

    def splits(self, inputs: Inputs) -> Splits:
        """Everything for training; eight pictures to evaluate on, so that training is what is timed."""
        train = Examples.of(inputs, torch.arange(len(inputs)) % 2)
        few = Examples.of(reader_for(SIDE).inputs(self.files[:8], 0), torch.arange(8) % 2)
        return Splits("pictures", train, few, few)

    def lazily(self) -> Inputs:
        """Read when needed."""
        return reader_for(SIDE).inputs(self.files, 0)

    def fit(self) -> None:
        """`fit` with worker processes."""
        self._fit(self.lazily())

    def fit_in_memory(self) -> None:
        """`fit` as it is for data that fits, decoding included."""
        reader = reader_for(SIDE)
        pixels, _ = decode_all(self.files, reader, self.workers)
        self._fit(TensorInputs(pixels, Normalise(reader.mean, reader.std)))

    def _fit(self, inputs: Inputs) -> None:
        settings = Training(
            epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE["lr"], momentum=RATE["momentum"], workers=self.workers
        )
        fit(small_network(), self.splits(inputs), None, settings)

    def curator(self) -> None:
        """The curator in a plain loop."""
        model = small_network()
        optimizer = torch.optim.SGD(model.parameters(), **RATE, fused=True)
        curator = Curator(self.splits(self.lazily()).train, batch_size=BATCH, workers=self.workers)
        for _ in curator.epochs(EPOCHS, model, optimizer):
            train(model, optimizer, ((batch.inputs, batch.labels) for batch in curator))
        curator.close()

    def loader(self) -> None:
        """The loop of the tutorials, with as many workers."""
        model = small_network()
        optimizer = torch.optim.SGD(model.parameters(), **RATE, fused=True)
        loader = DataLoader(ImageFiles(self.files), batch_size=BATCH, shuffle=True, num_workers=self.workers)
        for _ in range(EPOCHS):
            train(model, optimizer, loader)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """One epoch."""
    for inputs, labels in batches:
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def written(folder: Path, count: int) -> Iterator[Path]:
    """Pictures of smooth noise, as JPEG files."""
    random = np.random.default_rng(0)
    for number in range(count):
        coarse = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        file = folder / f"{number:05d}.jpg"
        Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, quality=90)
        yield file


def timed(loop: Callable[[], None]) -> float:
    """Seconds of wall time: workers count too."""
    started = time.perf_counter()
    loop()
    return time.perf_counter() - started


def images(repetitions: int, workers: int, count: int = IMAGES) -> list[Ratio]:
    """`fit` and the curator against the DataLoader."""
    with tempfile.TemporaryDirectory() as folder:
        case = ImageCase(Path(folder), count, workers)
        loops = {"loader": case.loader, "fit": case.fit, "curator": case.curator, "fit in memory": case.fit_in_memory}
        rows = list[dict[str, float]]()
        for number in range(repetitions + 1):  # the first one warms the page cache up
            names = list(loops)
            turn = number % len(names)
            rows.append({name: timed(loops[name]) for name in [*names[turn:], *names[:turn]]})
            print(", ".join(f"{name} {seconds:.2f} s" for name, seconds in sorted(rows[-1].items())), flush=True)
    peer, what = "torch DataLoader", f"{count:,} JPEG files, {workers} workers"
    return [
        Ratio.over(f"{name} / DataLoader ({what})", [row[name] / row["loader"] for row in rows[1:]], 1.05, peer)
        for name in ("fit", "curator", "fit in memory")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    ratios = images(chosen.repetitions, chosen.workers)
    for ratio in ratios:
        spread = "" if ratio.spread is None else f" +- {ratio.spread:.3f}"
        print(f"{ratio.name}: {ratio.value:.3f}{spread}, target {ratio.target}, met: {ratio.met}")
    print(write_benchmark("fit_scale", ratios, chosen.results))


if __name__ == "__main__":
    main()
