"""Conversations as token ids, and mini-batches of them in which only what is learned has labels.

All ids lie one after the other in one array: 262,040 examples of 200 tokens are 210 MB, not millions of Python lists.
What is learned and what is not are tokenised on their own and then joined, so that it is always certain where an answer
begins.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.readers.chats import Chat
from holdfast.data.readers.instructions import Instructions
from holdfast.errors import ConfigError, DataError
from holdfast.finetuning.language_models.templates import Piece, Template
from holdfast.finetuning.language_models.token_files import Chunk, shared_token_files
from holdfast.training.ranks import ALONE, Ranks

Ints = NDArray[np.int64]

#: The label of tokens that are not to be predicted, as transformers' losses know it.
IGNORED = -100

#: Tokens that are looked at together where all of them are: what they take beside the file they may lie in.
_AT_ONCE = 2**22
#: Conversations that are tokenised together.
_CHATS = 8192


@dataclass(frozen=True)
class TokenBatch:
    """Some examples, padded on the right to the longest.

    Attributes:
        input_ids: int64 of shape (b, length).
        attention_mask: 1 on the examples' own tokens, of the same shape.
        labels: the ids of response tokens, `IGNORED` elsewhere, of the same shape.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> TokenBatch:
        """The batch on a device."""
        return TokenBatch(self.input_ids.to(device), self.attention_mask.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class TokenPairs:
    """Token ids of what is given and of what is learned.

    Attributes:
        ids: of all examples, one after the other, int32.
        ends: where each example ends in `ids`, int64 of shape (n,).
        learned: which of `ids` are learned, bool of the same shape.
        pad: the id to pad with; it has no effect.
    """

    ids: NDArray[np.int32]
    ends: Ints
    learned: NDArray[np.bool_]
    pad: int

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each example."""
        return np.diff(self.ends, prepend=0)

    @cached_property
    def prompt_lengths(self) -> Ints:
        """Tokens of each example before the first that is learned; all of them where none is."""
        places = np.where(self.learned, np.arange(len(self.ids)), len(self.ids))
        starts = self.ends - self.lengths
        return np.minimum(np.minimum.reduceat(places, starts) - starts, self.lengths) if len(self) else starts

    @cached_property
    def predicted(self) -> Ints:
        """Tokens of each example that are learned and have one before them to be predicted from."""
        starts = self.ends - self.lengths
        predicted: Ints = np.add.reduceat(self.learned, starts, dtype=np.int64) - self.learned[starts]
        return predicted

    @cached_property
    def undefined(self) -> NDArray[np.bool_]:
        """Which examples have no token left to predict, because a long prompt took all the room."""
        undefined: NDArray[np.bool_] = self.predicted == 0
        return undefined

    @cached_property
    def unigram_entropy(self) -> float:
        """The loss, in nats, of a model that knows nothing but how frequent each learned token is."""
        counts = np.zeros(1, np.int64)
        for start in range(0, len(self.ids), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            seen = np.bincount(self.ids[part][self.learned[part]], minlength=len(counts))
            seen[: len(counts)] += counts
            counts = seen
        shares = counts[counts > 0] / max(1, counts.sum())
        return float(-(shares * np.log(shares)).sum())

    def part(self, positions: Ints) -> TokenPairs:
        """Some of the examples, in the order of `positions`."""
        lengths, ends = self.lengths[positions], self.ends[positions]
        places = [np.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        flat = np.concatenate(places) if places else np.empty(0, np.int64)
        return TokenPairs(self.ids[flat], np.cumsum(lengths), self.learned[flat], self.pad)

    def batch(self, positions: Sequence[int] | Ints) -> TokenBatch:
        """The examples at `positions` as a mini-batch."""
        ends, starts = self.ends[positions], self.ends[positions] - self.lengths[positions]
        lengths = ends - starts
        place = np.arange(lengths.max())
        inside = place < lengths[:, None]
        ids, labels = np.full(inside.shape, self.pad, np.int64), np.full(inside.shape, IGNORED, np.int64)
        flat = (starts[:, None] + place)[inside]
        ids[inside] = self.ids[flat]
        labels[inside] = np.where(self.learned[flat], self.ids[flat], IGNORED)
        return TokenBatch(torch.from_numpy(ids), torch.from_numpy(inside.astype(np.int64)), torch.from_numpy(labels))

    def batches(self, positions: Ints, most_tokens: int, *, share: tuple[int, int] = (0, 1)) -> list[Ints]:
        """Cut positions into mini-batches of similar lengths, so that little is computed for padding.

        Args:
            positions: which examples.
            most_tokens: a mini-batch has at most so many tokens, padding included, unless it is a single example.
            share: only the examples of one of several processes, such as (0, 2). They are dealt out in the order of
                their lengths, so that shares have about as many tokens: in every step all wait for the slowest.

        Returns:
            The positions of each mini-batch, the longest examples first, so that what doesn't fit fails at once.
        """
        ordered = positions[np.argsort(-self.lengths[positions], kind="stable")][share[0] :: share[1]]
        lengths, places, start = self.lengths[ordered], list[Ints](), 0
        while start < len(ordered):
            count = max(1, most_tokens // int(lengths[start]))
            places.append(ordered[start : start + count])
            start += count
        return places

    # What a Trainer's data set needs.

    def __getitem__(self, position: int) -> dict[str, Tensor]:
        one = self.batch([position])
        return {"input_ids": one.input_ids[0], "attention_mask": one.attention_mask[0], "labels": one.labels[0]}

    def collate(self, items: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """A Trainer's mini-batch out of several items."""
        fill = {"input_ids": self.pad, "attention_mask": 0, "labels": IGNORED}
        return {
            name: torch.nn.utils.rnn.pad_sequence([item[name] for item in items], True, value)
            for name, value in fill.items()
        }


def tokenize(
    data: Instructions,
    tokenizer: Any,
    template: Template,
    *,
    max_length: int = 512,
    skip_bad: bool = False,
    folder: Path | None = None,
    processes: Ranks = ALONE,
) -> TokenPairs:
    """Token ids of conversations in their template; answers end with the end token.

    Args:
        data: the conversations.
        tokenizer: a fast tokenizer of transformers.
        template: what is put around what is said to the assistant.
        max_length: examples are cut to so many tokens, at their end.
        skip_bad: conversations that the tokenizer's own template refuses have nothing to learn, instead of an error.
        folder: leave the token ids on disk there, memory-mapped; it must exist, and all processes must see it.
        processes: those that share the work where there is a folder.

    Raises:
        ConfigError: if the tokenizer has no end token, or the length leaves no room.
        DataError: if not a single example has a token left to learn, or the tokenizer's template refuses one.
    """
    end = tokenizer.eos_token_id
    if end is None:
        raise ConfigError("the tokenizer has no end token, so a model can't learn when to stop; set its eos_token")
    if max_length < 2:
        raise ConfigError(f"max_length is {max_length}; give at least 2, a prompt token and a response token")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

    def chunk(start: int, stop: int) -> Chunk:
        return _chunk(data, start, stop, tokenizer, template, max_length=max_length, skip_bad=skip_bad)

    if folder is None:
        chunks = [chunk(start, start + _CHATS) for start in range(0, len(data), _CHATS)]
        ids, learned, lengths = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    else:
        ids, learned, lengths = shared_token_files(folder, len(data), _CHATS, chunk, processes)
    pad = tokenizer.pad_token_id
    tokens = TokenPairs(ids, np.cumsum(lengths), learned, end if pad is None else pad)
    if bool(tokens.undefined.all()):
        raise DataError(
            f"all prompts of {data.name} in their template are longer than {max_length} tokens; raise max_length"
        )
    return tokens


def _chunk(
    data: Instructions,
    start: int,
    stop: int,
    tokenizer: Any,
    template: Template,
    *,
    max_length: int,
    skip_bad: bool,
) -> Chunk:
    """Token ids, which are learned, and lengths, of some neighbouring conversations."""
    end = tokenizer.eos_token_id
    chats = [
        _pieces(template, chat, tokenizer, f"row {row} of {data.name}", skip_bad)
        for row, chat in enumerate(data.chats[start:stop], start + 1)
    ]
    opened = prompt_ids(tokenizer, [pieces[0].text for pieces in chats], template)
    others = iter(_ids(tokenizer, [piece.text for pieces in chats for piece in pieces[1:]], special=False))
    ids, learned, lengths = list[NDArray[np.int32]](), list[NDArray[np.bool_]](), list[int]()
    for given, pieces in zip(opened, chats, strict=True):
        parts = [(given, False)]
        for piece in pieces[1:]:
            parts.append(([*next(others), *([end] if piece.ends else [])], piece.learned))
        row = np.array([token for part, _ in parts for token in part][:max_length], np.int32)
        ids.append(row)
        learned.append(np.repeat([kind for _, kind in parts], [len(part) for part, _ in parts])[:max_length])
        lengths.append(len(row))
    return np.concatenate(ids), np.concatenate(learned), np.array(lengths, np.int64)


def _pieces(template: Template, chat: Chat, tokenizer: Any, place: str, skip_bad: bool) -> list[Piece]:
    try:
        return template.pieces(chat, tokenizer, f"the prompt of {place}")
    except DataError:
        if not skip_bad:
            raise
        return [Piece("")]


def prompt_ids(tokenizer: Any, rendered: list[str], template: Template) -> list[list[int]]:
    """Token ids of prompts in their template, at least one each; an end that the tokenizer adds by itself is left out.

    Args:
        tokenizer: a fast tokenizer of transformers.
        rendered: the prompts in their template.
        template: that one.
    """
    end, begin = tokenizer.eos_token_id, tokenizer.bos_token_id
    first = [end if begin is None else begin]
    ids_of_texts = _ids(tokenizer, rendered, special=template.text is not None)
    return [
        (ids[:-1] if ids[-1:] == [end] and not text.endswith(tokenizer.eos_token) else ids) or first
        for text, ids in zip(rendered, ids_of_texts, strict=True)
    ]


def _ids(tokenizer: Any, texts: list[str], *, special: bool) -> list[list[int]]:
    """Token ids of texts; told apart from one long text, so that the tokenizer doesn't warn of its length."""
    return list(tokenizer(texts, add_special_tokens=special, verbose=False)["input_ids"])
