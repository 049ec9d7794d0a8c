"""Instruction data and language models small enough for a test."""

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.readers.instructions import Instructions
from holdfast.finetuning import LanguageModel, Template, TokenPairs, small_language_model, tokenize

VERBS = ("add", "take", "name", "spell")


def instructions(n: int = 24) -> Instructions:
    """Prompts of different lengths from three sources of different size."""
    rows = [
        {
            "instruction": f"{VERBS[i % 4]} {'very ' * (i % 5)}{i}",
            "output": f"it is {i * 7 % 10}" + " indeed" * (i % 3),
            "source": ("sums", "sums", "words", "names")[i % 4],
        }
        for i in range(n)
    ]
    return Instructions.of(rows)


def language(data: Instructions | None = None, **options: int) -> LanguageModel:
    """A GPT-NeoX of two narrow blocks."""
    texts = (data or instructions()).responses
    return small_language_model(texts, **{"layers": 2, "width": 16, "heads": 2, "vocabulary": 300, **options})


def tokens_of(data: Instructions, found: LanguageModel, max_length: int = 64, template: str = "plain") -> TokenPairs:
    return tokenize(data, found.tokenizer, Template.named(template, found.tokenizer), max_length=max_length)


def weights_of(model: torch.nn.Module) -> NDArray[np.float32]:
    return torch.cat([part.detach().flatten() for part in model.parameters()]).numpy().copy()
