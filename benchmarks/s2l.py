"""What choosing by loss curves costs: clustering, recording beside plain evaluation and beside training, memory.

- Choosing: 262,040 random walks of 30 points in 14 equal sources, 100 clusters each, 50,000 chosen. Beside it greedy
  facility location on hidden states of 512 dimensions, our own, which is the fastest we know. All of it would take
  hours, so it runs on one of the 14 sources only: 18,717 points, of which a fourteenth of the budget is chosen. Ratios
  are the time of that one source over ours for all 14, hence lower bounds.
- Recording: one point of the curves (`trajectory_point`) over a plain pass that asks the same model for its mean loss
  on the same mini-batches; and over ``Trainer.evaluate`` with mini-batches in the order of the data. A GPT-NeoX of 6
  layers of 256 and a vocabulary of 8,192 reads 512 examples of 20 to 250 tokens, of which a third are responses. They
  take turns.
- k-means by faiss beside scikit-learn, from the same start.
- Recording by the default schedule over the proxy's training: 256 examples as above, three epochs of 64.
- The same choice: facts and rare facts of the world of `holdfast.papers.s2l` that a tenth covers, chosen by S2L by
  source-blind curves of the default schedule's points over those by twelve; three seeds.
- Large data: 1,000,000 curves of 12 points in 14 sources, 100 clusters each, 100,000 chosen, in a process of its own,
  with its time and its peak of memory over that of the curves.
- Two processes: the wall time of one, over that of two, of the same training and recording on the rows above. Needs two
  cores that nobody else uses.

Times are the processor's, of one thread each, so that another process does not disturb them.

Needs faiss and transformers: ``pip install 'holdfast[llm,faiss]'``. Run: ``python benchmarks/s2l.py``, some 25 minutes;
``--only schedule large`` measures some parts, a few minutes each. Writes results/benchmarks/s2l.json, in which parts
that weren't measured stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import nn
from transformers import Trainer, TrainingArguments

from holdfast.cli.common.processes import joined_processes
from holdfast.finetuning import (
    FineTuningSettings,
    TokenPairs,
    TrajectoryRecorder,
    facility_locations,
    fine_tune,
    s2l_select,
)
from holdfast.finetuning.language_models.losses import MOST_TOKENS, trajectory_point
from holdfast.finetuning.language_models.models import gpt_neox
from holdfast.finetuning.suggestions import suggest
from holdfast.papers.engine.benchmarks import Ratio, cpu_seconds, peak_memory, read_benchmarks, write_benchmark
from holdfast.primitives.lloyd import lloyd
from holdfast.training.model_outputs import evaluating

EXAMPLES, POINTS, SOURCES, BUDGET = 262_040, 30, 14, 50_000
STATES = 512
CLUSTERS = 100
ROOT = Path(__file__).parents[1]


def walks(n: int) -> NDArray[np.float32]:
    steps = np.random.default_rng(0).normal(-0.05, 0.1, (n, POINTS))
    return (2 + steps.cumsum(1)).astype(np.float32)


def choosing(n: int, repetitions: int) -> list[Ratio]:
    curves, sources = walks(n), np.arange(n) % SOURCES
    budget = round(n * BUDGET / EXAMPLES)
    ours = [
        cpu_seconds(lambda: s2l_select(curves, budget, k=CLUSTERS, sources=sources, engine="faiss"))
        for _ in range(repetitions)
    ]
    one = n // SOURCES
    states = np.random.default_rng(1).standard_normal((one, STATES)).astype(np.float32)
    theirs = cpu_seconds(
        lambda: facility_locations(states, np.zeros(one, np.int64), np.ones(one, np.bool_), budget // SOURCES)
    )
    print(
        f"choosing {budget:,} of {n:,}: {statistics.median(ours):.1f} s; facility location, one source: {theirs:.1f} s"
    )
    ratios = [theirs / taken for taken in ours]
    name = "time of facility location on one source of 14 / all of S2L's choice"
    return [Ratio.over(name, ratios, 20.0, "facility location", "higher")]


def clustering(n: int, repetitions: int) -> list[Ratio]:
    curves = walks(n)
    times: dict[str, list[float]] = {"faiss": [], "scikit-learn": []}
    for _ in range(repetitions):
        for engine, taken in times.items():
            taken.append(cpu_seconds(lambda engine=engine: lloyd(curves, CLUSTERS, engine=engine)))
    shown = ", ".join(f"{engine} {statistics.median(taken):.2f} s" for engine, taken in times.items())
    print(f"k-means of {n:,} x {POINTS} into {CLUSTERS}: {shown}")
    ratios = [a / b for a, b in zip(times["scikit-learn"], times["faiss"], strict=True)]
    return [Ratio.over("k-means: speed of faiss / scikit-learn", ratios, 1.0, "scikit-learn", "higher")]


def texts(n: int) -> TokenPairs:
    draw = np.random.default_rng(2)
    lengths = draw.integers(20, 250, n)
    prompts = (2 * lengths) // 3
    places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    learned = places >= np.repeat(prompts, lengths)
    return TokenPairs(draw.integers(1, 8192, lengths.sum()).astype(np.int32), np.cumsum(lengths), learned, 0)


def plain_pass(model: nn.Module, tokens: TokenPairs) -> None:
    with evaluating(model):
        for positions in tokens.batches(np.arange(len(tokens)), MOST_TOKENS):
            batch = tokens.batch(positions)
            model(
                input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels, use_cache=False
            ).loss.item()


def recording(n: int, repetitions: int) -> list[Ratio]:
    model, tokens = gpt_neox(8192, layers=6, width=256, heads=8), texts(n)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_eval_batch_size=32, report_to=[], disable_tqdm=True, use_cpu=True
        )
        trainer = Trainer(model, arguments, eval_dataset=tokens, data_collator=tokens.collate)
        trainer.prediction_step(model, tokens.collate([tokens[0]]), prediction_loss_only=True)
        ways: dict[str, Callable[[], Any]] = {
            "ours": lambda: trajectory_point(model, tokens),
            "plain": lambda: plain_pass(model, tokens),
            "trainer": trainer.evaluate,
        }
        trainer.args.prediction_loss_only = True
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(repetitions):
            for way in [*ways][turn % 3 :] + [*ways][: turn % 3]:
                times[way].append(cpu_seconds(ways[way]))
    print("a point: " + ", ".join(f"{way} {statistics.median(taken):.1f} s" for way, taken in times.items()))
    ratios = []
    for peer, said in {"plain": "a plain evaluation pass", "trainer": "Trainer.evaluate"}.items():
        found = [a / b for a, b in zip(times["ours"], times[peer], strict=True)]
        ratios.append(Ratio.over(f"time of a point / {said}", found, 1.1, said))
    return ratios


def schedule(n: int, repetitions: int) -> list[Ratio]:
    """Recording by the default schedule, over training."""
    tokens, settings = texts(n), FineTuningSettings(epochs=3, batch_size=64, learning_rate=1e-3)
    points, total = suggest(n, n // 2, epochs=settings.epochs).points.value, settings.steps_for(n)
    found = []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            steps = [round(total * place / points) for place in range(1, points + 1)]
            recorder = TrajectoryRecorder(Path(folder), tokens, steps=steps)
            fine_tune(gpt_neox(8192, layers=6, width=256, heads=8), tokens, settings, recorder=recorder)
            taken = recorder.trajectories().seconds
            assert taken is not None
            found.append(taken.recording / taken.training)
    print(f"recording {points} points takes {statistics.median(found):.2f} of the training")
    return [Ratio.over("recording by the default schedule / the proxy's training", found, 0.5, "its training")]


def same_choice(seeds: int, examples: int = 6000, steps: int = 900) -> list[Ratio]:
    """What is covered by few points, over what is covered by twelve."""
    from holdfast.papers.s2l.cells import course, world  # noqa: PLC0415 - only here
    from holdfast.papers.s2l.world import TAIL, TOPICS  # noqa: PLC0415

    points, found = suggest(examples, examples // 10).points.value, dict[str, list[float]]()
    for seed in range(seeds):
        train = world(seed, examples).train
        curves = course("proxy", examples, steps, seed).course.trajectories
        covered = {}
        for name, given in {"few": curves.thinned(points), "all": curves}.items():
            chosen = s2l_select(given.losses, examples // 10, k=CLUSTERS, seed=seed).positions
            rare = chosen[train.topics[chosen] >= TOPICS - TAIL]
            covered[name] = {"facts": train.facts[chosen], "rare facts": train.facts[rare]}
        for what in ("facts", "rare facts"):
            few, whole = (len(np.unique(covered[name][what])) for name in ("few", "all"))
            found.setdefault(what, []).append(few / whole)
    print(f"covered by {points} points over 12: " + ", ".join(f"{w} {np.mean(v):.3f}" for w, v in found.items()))
    return [
        Ratio.over(f"{what} covered by the default points / by twelve", ratios, 0.97, "twelve points", "higher")
        for what, ratios in found.items()
    ]


def choose_many(n: int) -> None:
    """In a process of its own: choose from n curves, and print seconds and bytes beyond the curves."""
    draw = np.random.default_rng(0)
    curves = np.empty((n, 12), np.float32)
    for start in range(0, n, 100_000):
        part = curves[start : start + 100_000]
        part[:] = 2 + draw.normal(-0.05, 0.1, part.shape).cumsum(1)
    sources = np.arange(n) % SOURCES
    s2l_select(curves[:2000], 100, k=4)  # what is imported and allocated whatever the size
    before = peak_memory()
    taken = cpu_seconds(lambda: s2l_select(curves, n // 10, k=CLUSTERS, sources=sources))
    print(json.dumps({"seconds": taken, "bytes": 2**20 * (peak_memory() - before), "curves": curves.nbytes}))


def large(n: int) -> list[Ratio]:
    code = f"from benchmarks.s2l import choose_many; choose_many({n})"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603
    found = json.loads(said.splitlines()[-1])
    times = found["bytes"] / found["curves"]
    print(f"{n:,} x 12: {found['seconds']:.1f} s, {found['bytes'] / 1e6:.0f} MB beyond the curves' ({times:.1f} times)")
    return [
        Ratio.over(f"memory to choose from {n:,} x 12 / the curves' own", [times], 8.0, "the curves"),
        Ratio.over(f"seconds to choose from {n:,} x 12 / a minute", [found["seconds"] / 60], 1.0, "a minute"),
    ]


def record_shared(folder: str, n: int) -> None:
    """What each process of `together` does."""
    with joined_processes("cpu") as ranks:
        tokens, settings = texts(n), FineTuningSettings(epochs=1, batch_size=64, learning_rate=1e-3)
        model = gpt_neox(8192, layers=6, width=256, heads=8)
        total = settings.steps_for(n)
        ranks.wait()
        began = time.perf_counter()
        recorder = TrajectoryRecorder(Path(folder), tokens, steps=[total // 2, total], processes=ranks)
        fine_tune(model, tokens, settings, recorder=recorder, processes=ranks)
        ranks.wait()
        if ranks.is_main:
            print(json.dumps(time.perf_counter() - began))


def together(n: int, repetitions: int) -> list[Ratio]:
    """Wall time of one process over that of two."""
    found = []
    for _ in range(repetitions):
        walls = [_wall(count, n) for count in (1, 2)]
        found.append(walls[0] / walls[1])
    print(f"two processes: {statistics.median(found):.2f} times one")
    return [Ratio.over("speed of two processes / one", found, 1.7, "one process", "higher")]


def _wall(count: int, n: int) -> float:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        code = f"from benchmarks.s2l import record_shared; record_shared({folder!r}, {n})"
        shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        running = [
            subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-c", code],
                cwd=ROOT,
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]
        said = [process.communicate()[0] for process in running]
    return float(said[0].splitlines()[-1])


#: Each by whether it is only tried, and how often it is repeated.
PARTS: dict[str, Callable[[bool, int], list[Ratio]]] = {
    "recording": lambda quick, times: recording(32 if quick else 512, times),
    "clustering": lambda quick, times: clustering(20_000 if quick else EXAMPLES, times),
    "choosing": lambda quick, times: choosing(28_000 if quick else EXAMPLES, times),
    "large": lambda quick, times: large(20_000 if quick else 1_000_000),
    "schedule": lambda quick, times: schedule(64 if quick else 256, min(times, 2)),
    "same-choice": lambda quick, times: same_choice(1, 600, 60) if quick else same_choice(3),
    "processes": lambda quick, times: together(128 if quick else 512, min(times, 2)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition; nothing is written")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="which parts to measure")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    repetitions = 1 if chosen.quick else chosen.repetitions
    with threadpool_limits(1):
        ratios = [ratio for part in chosen.only for ratio in PARTS[part](chosen.quick, repetitions)]
    if not chosen.quick:
        measured = {ratio.name for ratio in ratios}
        known = [one for one in read_benchmarks(chosen.results) if one.name == "s2l"]
        ratios += [ratio for one in known for ratio in one.ratios if ratio.name not in measured]
        print(write_benchmark("s2l", ratios, chosen.results))


if __name__ == "__main__":
    main()
