"""Texts, alone or in pairs, that are tokenised when they are gathered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from holdfast.errors import DataError, MissingDependencyError


@dataclass(frozen=True)
class TextInputs:
    """Texts that are tokenised when they are gathered; the tokenizer is loaded at the first one.

    Attributes:
        texts: the texts.
        tokenizer: a name on the Hugging Face hub, or a local folder.
        max_tokens: texts are cut to this many tokens.
        seconds: the second text of each pair, where they are pairs.
        padding: to `max_tokens` always, or to the ``longest`` of those that are gathered together.
    """

    texts: NDArray[np.object_]
    tokenizer: str
    max_tokens: int
    seconds: NDArray[np.object_] | None = None
    padding: Literal["max_length", "longest"] = "max_length"
    _loaded: list[Any] = field(default_factory=list, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, rows: NDArray[np.int64]) -> TextInputs:
        """Some of the texts, with the same tokenizer."""
        return replace(self, texts=self.texts[rows], seconds=None if self.seconds is None else self.seconds[rows])

    def gather(self, positions: Tensor) -> dict[str, Tensor]:
        """Token ids and attention masks, int64 of shape (positions, tokens)."""
        if len(positions) == 0:  # as wide as texts may be; no tokenizer is loaded for it
            return {name: positions.new_zeros(0, self.max_tokens) for name in ("input_ids", "attention_mask")}
        if not self._loaded:
            self._loaded.append(load_tokenizer(self.tokenizer))
        rows = positions.tolist()
        batch = self._loaded[0](
            [self.texts[row] for row in rows],
            None if self.seconds is None else [self.seconds[row] for row in rows],
            truncation=True,
            padding=self.padding,
            max_length=self.max_tokens,
            return_tensors="pt",
        )
        return {name: batch[name] for name in ("input_ids", "attention_mask")}


def load_tokenizer(name: str) -> Any:
    """A tokenizer by its name on the hub or its local folder; code that comes with it is never run.

    Raises:
        MissingDependencyError: if transformers isn't installed.
        DataError: if there is no such tokenizer, or no network to fetch it.
    """
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError(
            "text data needs transformers; install it with `pip install 'holdfast[transformers]'`"
        ) from error
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"the tokenizer {name!r} can't be loaded ({reason}); give a name on the hub, or a local folder that has it"
        ) from error
