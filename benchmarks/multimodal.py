"""What keeping features saves: an epoch of projections-only fine-tuning with the cache and without it.

A CLIP of the transformers library (6 vision layers of 384 over patches of 32, 4 text layers of 256; random weights,
time doesn't depend on them) is tuned on 256 images of 224 pixels in batches of 32, with prompts of 2 classes in 2
templates; and the small ConvNet tower on the rendered shapes, 962 images of 24 pixels in batches of 128 with all
prompts. An epoch is the training part of `fine_tune` on one thread, without evaluation and without filling the cache.
Both ways take turns. The mean loss of the first epoch must agree to 1e-5.

Needs transformers: ``pip install 'holdfast[multimodal]'``. Run: ``python benchmarks/multimodal.py``, some 5 minutes.
Writes results/benchmarks/multimodal.json.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

import torch
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

from holdfast.data import Examples, Splits
from holdfast.multimodal import SmallTwoTowerModel, SpuriousAware, TwoTowerModel, Wording, WordTokenizer, fine_tune
from holdfast.multimodal.backends import TransformersClip
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.shapes.images import CAPTIONS, SHAPE_WORDING, shape_task
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark
from holdfast.training import Training

EVERY_TERM = SpuriousAware(lambda_vs=1.0)


class Letters:
    """Stands in for CLIP's tokenizer: a number per letter, then the end mark."""

    def __call__(self, texts: list[str], *, max_length: int, **_: object) -> dict[str, torch.Tensor]:
        """Token ids, as CLIP's tokenizer returns them."""
        rows = [[*(ord(letter) % 1000 for letter in text[: max_length - 1]), 49407] for text in texts]
        return {"input_ids": torch.tensor([row + [49407] * (max_length - len(row)) for row in rows])}


def clip_bed(images: int) -> tuple[TwoTowerModel, Splits, Wording, Training]:
    torch.manual_seed(0)
    text = CLIPTextConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, eos_token_id=49407
    )
    vision = CLIPVisionConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    config = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict())
    tower = TransformersClip(CLIPModel(config), Letters(), Preprocessing(224))
    labels, attributes = torch.arange(images) % 2, torch.arange(images) // 2 % 2
    part = Examples.of(torch.randn(images, 3, 224, 224), labels, attributes=attributes)
    few = part.subset(torch.arange(4))
    wording = replace(SHAPE_WORDING, templates=CAPTIONS[:2])
    return tower, Splits("noise", part, few, few), wording, Training(batch_size=32, learning_rate=1e-3)


def small_bed() -> tuple[TwoTowerModel, Splits, Wording, Training]:
    torch.manual_seed(0)
    tower = SmallTwoTowerModel(WordTokenizer.of([*CAPTIONS, "disc square sand sea shape on"], 14))
    splits = shape_task(tower.preprocessing).splits
    return tower, splits, SHAPE_WORDING, Training(batch_size=128, learning_rate=0.01)


def measure(
    name: str, bed: tuple[TwoTowerModel, Splits, Wording, Training], epochs: int, repetitions: int, target: float
) -> list[Ratio]:
    tower, splits, wording, training = bed
    start = {key: value.clone() for key, value in tower.state_dict().items()}
    times: dict[bool, list[float]] = {True: [], False: []}
    losses: dict[bool, float] = {}
    for turn in range(repetitions):
        for cache in (True, False) if turn % 2 else (False, True):
            tower.load_state_dict(start)
            settings = replace(training, epochs=epochs if cache else 1)
            result = fine_tune(tower, splits, wording, EVERY_TERM, settings, cache=cache)
            times[cache].append(result.seconds["train"] / len(result.history))
            losses[cache] = result.history[0]["loss"]
    difference = abs(losses[True] - losses[False])
    said = f"cached {statistics.median(times[True]):.4f} s, uncached {statistics.median(times[False]):.3f} s"
    print(f"{name}: an epoch {said}; losses differ by {difference:.1e}")
    if difference > 1e-5:
        raise SystemExit(f"{name}: the losses differ by {difference:.1e}, which is more than 1e-5")
    ratios = [a / b for a, b in zip(times[False], times[True], strict=True)]
    return [Ratio.over(f"{name}: an epoch without the cache / with it", ratios, target, "uncached", "higher")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition; nothing is written")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    repetitions = 1 if chosen.quick else chosen.repetitions
    ratios = measure("small tower on shapes", small_bed(), 5, repetitions, 10.0)
    ratios += measure("small CLIP, 224 pixels", clip_bed(64 if chosen.quick else 256), 5, repetitions, 10.0)
    if not chosen.quick:
        print(write_benchmark("multimodal", ratios, chosen.results))


if __name__ == "__main__":
    main()
