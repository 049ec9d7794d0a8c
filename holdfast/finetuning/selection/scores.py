"""What the baselines need to know of every example: how sure a model is of it, and what it makes of it inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.finetuning.language_models.losses import Floats, example_scores, sweep_examples
from holdfast.finetuning.language_models.tokens import TokenBatch, TokenPairs

Layer = Literal["first", "last"]


@dataclass(frozen=True, eq=False)
class ResponseScores:
    """What a model makes of all responses, each of shape (n,); 0 where no response token is left.

    Attributes:
        loss: mean loss of a token; its exponential is the perplexity.
        confidence: mean probability of the response's tokens.
        certainty: mean largest probability at the response's places, whatever the response says there.
    """

    loss: Floats
    confidence: Floats
    certainty: Floats

    @property
    def geometric_confidence(self) -> Floats:
        """Geometric mean of the tokens' probabilities."""
        return np.exp(-self.loss)


def response_scores(model: nn.Module, tokens: TokenPairs, **options: Any) -> ResponseScores:
    """Score all examples in one pass.

    Args:
        model: a causal language model.
        tokens: the examples.
        options: of `holdfast.finetuning.language_models.losses.sweep_examples`.
    """

    def of(model: nn.Module, batch: TokenBatch) -> Tensor:
        scores = example_scores(model, batch)
        count = scores.tokens.clamp(min=1)
        return torch.stack([scores.loss / count, scores.confidence / count, scores.certainty / count], 1)

    return ResponseScores(*sweep_examples(model, tokens, of, width=3, **options).T)


def hidden_states(model: nn.Module, tokens: TokenPairs, layer: Layer = "last", **options: Any) -> Floats:
    """Hidden states of prompts and responses, averaged over tokens.

    Args:
        model: a causal language model of transformers.
        tokens: the examples.
        layer: after the first or the last block; the latter as transformers gives it, with the final norm.
        options: of `holdfast.finetuning.language_models.losses.sweep_examples`.

    Returns:
        Shape (n, d).
    """
    place = 1 if layer == "first" else -1
    width = int(model.config.hidden_size)  # type: ignore[union-attr,arg-type]

    def of(model: nn.Module, batch: TokenBatch) -> Tensor:
        states = model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True, use_cache=False
        ).hidden_states[place]
        inside = batch.attention_mask[:, :, None].to(states.dtype)
        averaged: Tensor = (states * inside).sum(1) / inside.sum(1)
        return averaged

    return sweep_examples(model, tokens, of, width=width, **options)
