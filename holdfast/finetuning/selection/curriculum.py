"""A curriculum by confidence (Varshney, Mishra and Baral 2022): the model itself says what it learns next.

The paper is https://arxiv.org/abs/2205.09898.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from holdfast.errors import ConfigError
from holdfast.finetuning.language_models.tokens import Ints, TokenPairs
from holdfast.finetuning.selection.baselines import most_confident
from holdfast.finetuning.selection.scores import response_scores


@dataclass
class ConfidenceCurriculum:
    """Feeds a training in rounds, in each the examples that the model is surest of among those it hasn't seen.

    Every round scores the pool and takes its share of the budget; its examples are fed by falling confidence, over and
    over until the next round. Give it to `fine_tune` as its ``feed``, for a new training each. What it has fed is in
    memory only, so such a training keeps no checkpoint.

    Attributes:
        tokens: the pool.
        budget: different examples in all.
        steps: of the training.
        batch_size: examples of a step.
        rounds: how often the pool is scored.
        chosen: positions in the order of their first use, so far.
    """

    tokens: TokenPairs
    budget: int
    steps: int
    batch_size: int
    rounds: int = 3
    chosen: list[int] = field(default_factory=list)
    _round: Ints = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    _used: NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= min(self.steps, self.budget):
            raise ConfigError(
                f"a curriculum of {self.rounds} rounds needs as many steps and examples; there are {self.steps} steps "
                f"and a budget of {self.budget}"
            )
        self._used = self.tokens.undefined.copy()

    def __call__(self, model: nn.Module, step: int) -> Ints:
        """The examples of a step."""
        number = step * self.rounds // self.steps
        place = step - math.ceil(number * self.steps / self.rounds)
        if place == 0:
            share = (self.budget * (number + 1)) // self.rounds - len(self.chosen)
            confidence = response_scores(model, self.tokens).confidence
            self._round = most_confident(confidence, ~self._used, share)
            self._used[self._round] = True
            self.chosen += self._round.tolist()
        start = place * self.batch_size
        return self._round[np.arange(start, start + self.batch_size) % len(self._round)]
