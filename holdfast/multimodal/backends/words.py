"""A tokenizer that knows whole words: enough for a small text tower whose every sentence is known beforehand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from holdfast.errors import ConfigError

PAD, UNKNOWN, END = 0, 1, 2

_RESERVED = 3
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class WordTokenizer:
    """Words to numbers, with an end mark after the last and padding behind it.

    Attributes:
        words: the words that are known, in the order of their numbers.
        length: how many tokens a text has, the end mark included; longer ones are cut.
    """

    words: tuple[str, ...]
    length: int

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ConfigError(f"a text of {self.length} tokens has no place for a word and the end; give at least 2")

    @classmethod
    def of(cls, texts: Iterable[str], length: int) -> WordTokenizer:
        """A tokenizer that knows the words of `texts`."""
        return cls(tuple(sorted({word for text in texts for word in _split(text)})), length)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return len(self.words) + _RESERVED

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Token ids, int64 of shape (n, length)."""
        tokens = torch.full((len(texts), self.length), PAD)
        for row, text in enumerate(texts):
            known = [self._numbers.get(word, UNKNOWN) for word in _split(text)][: self.length - 1]
            tokens[row, : len(known) + 1] = torch.tensor([*known, END])
        return tokens

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, _RESERVED)}


def _split(text: str) -> list[str]:
    return _WORD.findall(text.lower())
