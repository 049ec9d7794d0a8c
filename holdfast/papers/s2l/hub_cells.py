"""S2L at its own scale: a public instruction set, a proxy and a target from the hub, and problems to be solved.

A cell takes GPU hours. What cells share, the proxy's curves and the scores of a target that was trained on everything,
is kept below the data root and continued where it was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data import data_root
from holdfast.data.readers.instructions import Instructions, read_instructions
from holdfast.data.sets.text.math_problems import final_answer, load_math_problems
from holdfast.finetuning import (
    FineTuningSettings,
    Template,
    Trajectories,
    fine_tune,
    load_language_model,
    tokenize,
)
from holdfast.finetuning.evaluation.generation import math_accuracy
from holdfast.finetuning.proxy import record_trajectories
from holdfast.models.devices import best_device
from holdfast.papers.s2l.rows import HOW, Course, choose, follow, tell_loss, tell_weights


@lru_cache(maxsize=1)
def _data(name: str) -> Instructions:
    return read_instructions(name, split="train", skip_bad=False)


def _settings(settings: Mapping[str, Any], seed: int, steps: int | None = None) -> FineTuningSettings:
    own = {key: settings[key] for key in ("epochs", "batch_size", "learning_rate")}
    return FineTuningSettings(steps=steps, most_tokens=4096, seed=seed, **own, **HOW)


def _curves(settings: Mapping[str, Any], seed: int) -> Trajectories:
    """The proxy's trajectories, recorded once for all cells of a seed."""
    data, proxy = _data(settings["data"]), load_language_model(settings["proxy"], four_bit=False)
    proxy.model.to(best_device())
    place = data_root(None) / "s2l" / f"{Path(settings['proxy']).name}-{data.fingerprint}-s{seed}"
    return record_trajectories(
        data,
        proxy,
        place,
        _settings(settings, seed),
        template="auto",
        max_length=settings["max_length"],
        every=settings["every"],
        # The document's length cuts the responses of some long problems off; no row of its tables can choose those.
        ready=lambda undefined: None,
        by_memory=False,
        skip_bad=False,
    )


@lru_cache(maxsize=1)
def _course(data: str, target: str, max_length: int, training: FineTuningSettings) -> Course:
    """What the target makes of all examples before, early in and after a training on all of them."""
    language = load_language_model(target, four_bit=False)
    language.model.to(best_device())
    template = Template.named("auto", language.tokenizer)
    tokens = tokenize(_data(data), language.tokenizer, template, max_length=max_length, skip_bad=False)
    return follow(language.model, tokens, training)


def fine_tune_and_solve(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Choose a subset, fine-tune the target on it for as many steps as on everything, and let it solve problems.

    Args:
        settings: ``data``, ``proxy`` and ``target`` by their names on the hub, or local paths; ``method``, ``budget``,
            ``k``; ``epochs``, ``batch_size``, ``learning_rate``, ``max_length`` and ``every`` of the fine-tuning;
            ``tests`` (sets of math problems), ``tested`` (how many of each; all where it is None) and ``programs``.
        seed: of everything.

    Returns:
        Accuracy on each test set in percent, and their ``mean``.
    """
    data, training = _data(settings["data"]), _settings(settings, seed)
    language = load_language_model(settings["target"], four_bit=False)
    language.model.to(best_device())
    template = Template.named("auto", language.tokenizer)
    tokens = tokenize(data, language.tokenizer, template, max_length=settings["max_length"], skip_bad=False)
    if settings["method"] != "pretrained":
        chosen = choose(
            settings["method"],
            settings["budget"] or len(data),
            sources=data.sources,
            undefined=tokens.undefined,
            proxy=lambda: _curves(settings, seed),
            target=lambda: _course(settings["data"], settings["target"], settings["max_length"], training),
            k=settings["k"],
            smallest=3,
            seed=seed,
        )
        steps = training.steps_for(int((~tokens.undefined).sum()))
        fine_tune(language.model, tokens.part(chosen), _settings(settings, seed, steps), progress=tell_loss)
    tell_weights(language.model)
    metrics = dict[str, float]()
    for name in settings["tests"]:
        problems = load_math_problems(name, data_root(None))
        some = problems.part(np.arange(len(problems))[: settings["tested"]])
        golds = [final_answer(response) for response in some.responses]
        right = math_accuracy(language, some.prompts, golds, programs=settings["programs"])
        metrics[name] = 100 * float(right.mean())
    return {**metrics, "mean": float(np.mean(list(metrics.values())))}
