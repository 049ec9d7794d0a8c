"""Let a language model answer, and say which of its answers are right.

Decoding is greedy. Where programs are wanted, a model is asked for one first; if there is none, or it ends badly, it is
asked again to reason in words, as MAmmoTH's pipeline does it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.readers.chats import Turn
from holdfast.errors import ConfigError, DataError
from holdfast.finetuning.evaluation.answers import exact_match, printed_answer
from holdfast.finetuning.evaluation.programs import find_program, run_program
from holdfast.finetuning.evaluation.sandbox import find_sandbox
from holdfast.finetuning.language_models.models import LanguageModel
from holdfast.finetuning.language_models.templates import Template
from holdfast.finetuning.language_models.tokens import prompt_ids
from holdfast.training.model_outputs import device_of, evaluating

#: What MathInstruct puts behind a question to ask for a program.
ASK_FOR_PROGRAM = " Let's write a program."


def generate(
    language: LanguageModel,
    prompts: Sequence[tuple[Turn, ...]],
    *,
    template: str = "auto",
    max_new_tokens: int = 256,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Responses by greedy decoding.

    Args:
        language: model and tokenizer.
        prompts: the turns before each response.
        template: what is put around them.
        max_new_tokens: of a response at most.
        batch_size: prompts at once; those of similar length are together.
        progress: told how many of how many are done.

    Returns:
        The responses, in the order of the prompts, without special tokens.
    """
    tokenizer, form = language.tokenizer, Template.named(template, language.tokenizer)
    texts = [form.render(turns, tokenizer) for turns in prompts]
    rows = prompt_ids(tokenizer, texts, form)
    order = np.argsort([-len(row) for row in rows], kind="stable")
    found = [""] * len(rows)
    with evaluating(language.model):
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            for place, said in zip(places, _decoded(language, [rows[i] for i in places], max_new_tokens), strict=True):
                found[place] = said
            if progress is not None:
                progress(start + len(places), len(rows))
    return found


def math_accuracy(
    language: LanguageModel,
    prompts: Sequence[tuple[Turn, ...]],
    golds: Sequence[str],
    *,
    programs: bool = False,
    **options: Any,
) -> NDArray[np.bool_]:
    """Which problems a model solves.

    Args:
        language: model and tokenizer.
        prompts: the problems.
        golds: their answers.
        programs: ask for a program first, and for words where it gives nothing. A machine without a sandbox is
            warned of at once; the first program that a model writes there is an error.
        options: of `generate`.

    Returns:
        bool of shape (n,).

    Raises:
        DataError: if there are not as many answers as problems.
        ConfigError: if there is a program and no sandbox to run it in.
    """
    if len(prompts) != len(golds):
        raise DataError(f"there are {len(prompts)} problems and {len(golds)} answers; give one answer per problem")
    texts: list[str | None] = [None] * len(prompts)
    if programs:
        _warn_without_sandbox()
        asked = [(*turns[:-1], (turns[-1][0], turns[-1][1] + ASK_FOR_PROGRAM)) for turns in prompts]
        for place, said in enumerate(generate(language, asked, **options)):
            program = find_program(said)
            printed = run_program(program).printed if program else None
            texts[place] = None if printed is None else printed_answer(printed)
    left = [place for place, text in enumerate(texts) if text is None]
    for place, said in zip(left, generate(language, [prompts[place] for place in left], **options), strict=True):
        texts[place] = said
    return exact_match([text or "" for text in texts], golds)


def _warn_without_sandbox() -> None:
    """Say before hours of generation what would be an error after them, if the model writes programs at all."""
    try:
        find_sandbox()
    except ConfigError as error:
        logging.getLogger(__name__).warning("%s", error)


def _decoded(language: LanguageModel, rows: Sequence[Sequence[int]], most: int) -> list[str]:
    """Continue token ids, padded on the left."""
    model: Any = language.model
    tokenizer, device = language.tokenizer, device_of(language.model)
    end = tokenizer.eos_token_id
    pad = end if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows], device=device)
    inside = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    written = model.generate(
        input_ids=ids, attention_mask=inside, max_new_tokens=most, do_sample=False, eos_token_id=end, pad_token_id=pad
    )
    return [str(text) for text in tokenizer.batch_decode(written[:, width:], skip_special_tokens=True)]
