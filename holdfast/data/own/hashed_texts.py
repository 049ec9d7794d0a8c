"""Texts as numbers of words without a vocabulary or a network: a word's number is its hash (Weinberger et al. 2009).

Texts are cut into words once and held as one row of numbers with offsets, so that a batch is padded to the longest of
its own texts and no longer.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: How many numbers a word may have; 0 is padding. Two of 20,000 frequent words share one with probability 0.3.
VOCABULARY = 1 << 15
_WORDS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class HashedTexts:
    """Texts as rows of word numbers.

    Attributes:
        words: the numbers of all texts, one after another, int32.
        offsets: text i has the words from ``offsets[i]`` up to ``offsets[i + 1]``.
        max_tokens: what an empty batch is as wide as; no text has more words.
    """

    words: NDArray[np.int32]
    offsets: NDArray[np.int64]
    max_tokens: int

    @classmethod
    def of(cls, texts: Iterable[str], max_tokens: int) -> HashedTexts:
        """Cut texts into words; each text keeps the first `max_tokens`."""
        numbers: dict[str, int] = {}
        words, ends = array("i"), array("q", [0])
        for text in texts:
            found = _WORDS.findall(text.lower())[:max_tokens]
            for word in found:
                number = numbers.get(word)
                if number is None:
                    number = numbers[word] = crc32(word.encode("utf-8", "surrogatepass")) % (VOCABULARY - 1) + 1
                words.append(number)
            ends.append(len(words))
        return cls(
            np.frombuffer(words, np.int32) if words else np.empty(0, np.int32),
            np.frombuffer(ends, np.int64),
            max_tokens,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def gather(self, positions: Tensor) -> dict[str, Tensor]:
        """Word numbers and masks, int64 of shape (positions, longest of these texts)."""
        rows = positions.numpy()
        starts, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        width = max(int(lengths.max()), 1) if len(rows) else self.max_tokens
        inside = np.arange(width) < lengths[:, None]
        ids = np.zeros((len(rows), width), np.int64)
        ids[inside] = self.words[(starts[:, None] + np.arange(width))[inside]]
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(inside.astype(np.int64))}

    def padded(self) -> Tensor:
        """All texts as one tensor, int32 of shape (texts, max_tokens), for clients of a federation; 0 is padding."""
        out = torch.zeros(len(self), self.max_tokens, dtype=torch.int32)
        for rows in torch.split(torch.arange(len(self)), 4096):
            ids = self.gather(rows)["input_ids"]
            out[rows, : ids.shape[1]] = ids.to(torch.int32)
        return out
