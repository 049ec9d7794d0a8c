"""What choosing by loss curves costs: clustering beside facility location, and recording beside plain evaluation.

- Choosing: 262,040 random walks of 30 points in 14 equal sources, 100 clusters each, 50,000 chosen. Beside it greedy
  facility location on hidden states of 512 dimensions, our own, which is the fastest we know. All of it would take
  hours, so it runs on one of the 14 sources only: 18,717 points, of which a fourteenth of the budget is chosen. Ratios
  are the time of that one source over ours for all 14, hence lower bounds.
- Recording: one point of the curves (`trajectory_point`) over a plain pass that asks the same model for its mean loss
  on the same mini-batches; and over ``Trainer.evaluate`` with mini-batches in the order of the data. A GPT-NeoX of 6
  layers of 256 and a vocabulary of 8,192 reads 512 examples of 20 to 250 tokens, of which a third are responses. They
  take turns.
- k-means by faiss beside scikit-learn, from the same start.

Times are the processor's, of one thread each, so that another process does not disturb them.

Needs faiss and transformers: ``pip install 'holdfast[llm,faiss]'``. Run: ``python benchmarks/s2l.py``, some 15 minutes.
Writes results/benchmarks/s2l.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import nn
from transformers import Trainer, TrainingArguments

from holdfast.finetuning import TokenPairs, facility_locations, s2l_select
from holdfast.finetuning.language_models.losses import MOST_TOKENS, trajectory_point
from holdfast.finetuning.language_models.models import gpt_neox
from holdfast.papers.engine.benchmarks import Ratio, cpu_seconds, write_benchmark
from holdfast.primitives.lloyd import lloyd
from holdfast.training.model_outputs import evaluating

EXAMPLES, POINTS, SOURCES, BUDGET = 262_040, 30, 14, 50_000
STATES = 512
CLUSTERS = 100


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
    return TokenPairs(draw.integers(1, 8192, lengths.sum()).astype(np.int32), np.cumsum(lengths), prompts, 0)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition; nothing is written")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    repetitions = 1 if chosen.quick else chosen.repetitions
    with threadpool_limits(1):
        ratios = recording(32 if chosen.quick else 512, repetitions)
        ratios += clustering(20_000 if chosen.quick else EXAMPLES, repetitions)
        ratios += choosing(28_000 if chosen.quick else EXAMPLES, repetitions)
    if not chosen.quick:
        print(write_benchmark("s2l", ratios, chosen.results))


if __name__ == "__main__":
    main()
