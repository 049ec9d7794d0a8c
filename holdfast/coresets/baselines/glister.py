"""Glister: the subset whose gradient step lowers the loss on validation data the most.

Killamsetty et al., "GLISTER: Generalization based Data Subset Selection for Efficient and Robust Learning" (AAAI 2021,
https://arxiv.org/abs/2012.10630), online form. To first order an example is worth <its gradient, the gradient of the
validation loss>; after a round of choices the last layer takes the step they would make, and the validation gradient is
computed again. It uses validation labels to train, which other methods here don't.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.coresets.baselines.subset import SubsetPolicy
from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.models.heads import find_head
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.policy import Context


@dataclass(kw_only=True)
class Glister(SubsetPolicy):
    """Chooses what lowers the validation loss, in a few rounds.

    Attributes:
        rounds: how often the validation gradient is computed again on the way.
        step: learning rate of the imagined step; by default the run's.
    """

    name: ClassVar[str] = "glister"
    needs_features: ClassVar[bool] = True

    rounds: int = 15
    step: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise ConfigError(f"rounds of glister is {self.rounds}; give at least 1")
        if self.step is not None and not 0 < self.step < math.inf:
            raise ConfigError(f"step of glister is {self.step}; give a positive number")

    def choose(self, context: Context, pool: Tensor, size: int) -> tuple[Tensor, None]:
        """Rounds of the best, each on the last layer as those before it would have changed it."""
        validation = context.validation
        if validation is None or context.model is None:
            raise DataError("glister chooses by validation loss and has no validation set; give one")
        step = self.step if self.step is not None else context.learning_rate or 0.01
        _, head = find_head(context.model, context.head)
        outputs = ModelOutputs(context.model, validation, features=True, head=context.head)
        picked = greedy_by_validation(
            _with_one(context.outputs.features(pool)),
            context.outputs.residuals(pool),
            _with_one(outputs.features()),
            validation,
            _with_bias(head),
            size=size,
            rounds=self.rounds,
            step=step,
        )
        self.accounts.forward += outputs.forwarded
        return pool[picked], None


def greedy_by_validation(
    features: Tensor,
    residuals: Tensor,
    validation_features: Tensor,
    validation: Examples,
    head: Tensor,
    *,
    size: int,
    rounds: int,
    step: float,
) -> Tensor:
    """Choose examples by what a step on their gradients does to the validation loss, to first order.

    Args:
        features: [h; 1] of the candidates, shape (n, d + 1).
        residuals: softmax minus one-hot of the candidates, shape (n, classes).
        validation_features: [h; 1] of the validation set, shape (v, d + 1).
        validation: the validation set.
        head: weights of the last layer with the bias as last column, shape (classes, d + 1).
        size: how many to choose.
        rounds: in how many rounds.
        step: learning rate.

    Returns:
        Places of the chosen, int64 of shape (size,), in the order of their choice.
    """
    head, left = head.clone(), torch.ones(len(features), dtype=torch.bool)
    chosen = list[Tensor]()
    for shared in torch.tensor_split(torch.arange(size), min(rounds, size)):
        logits = validation_features @ head.T
        error = logits.softmax(1) - F.one_hot(validation.labels, logits.shape[1])
        slope = error.T @ validation_features / len(validation)
        worth = ((residuals @ slope) * features).sum(1)
        worth[~left] = -torch.inf
        best = worth.topk(len(shared)).indices
        left[best] = False
        chosen.append(best)
        head -= step * residuals[best].T @ features[best]
    return torch.cat(chosen)


def _with_one(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones(len(features), 1)], 1)


def _with_bias(head: torch.nn.Linear) -> Tensor:
    weight = head.weight.detach().cpu().float()
    bias = torch.zeros(len(weight)) if head.bias is None else head.bias.detach().cpu().float()
    return torch.cat([weight, bias[:, None]], 1)
