"""How a model fares on every group of a set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.data.examples import EXAMPLES_WANTED, Examples
from holdfast.errors import expect_kind
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.ranks import ALONE, Ranks

#: Logits that are kept at once, of so many examples together: 32 MB of them.
_OUTPUTS_AT_ONCE = 1 << 23


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of each example of a set, in the order of the set.

    Attributes:
        predicted: most likely class, int64 of shape (n,).
        confidence: its probability, float32 of shape (n,).
    """

    predicted: Tensor
    confidence: Tensor


def predict(model: nn.Module, examples: Examples, *, batch_size: int = 512, ranks: Ranks = ALONE) -> Predictions:
    """The model's predictions in evaluation mode, shared out over processes; the model is left as it was.

    Outputs are kept for a block of examples at a time, so that a million examples of a thousand classes fit.
    """
    size = max(1, _OUTPUTS_AT_ONCE // max(examples.n_classes, 1) // batch_size) * batch_size
    blocks = torch.split(torch.arange(len(examples)), size)
    parts = [examples] if len(blocks) == 1 else [examples.subset(block) for block in blocks]
    found = [ModelOutputs(model, part, batch_size=batch_size, ranks=ranks).probabilities().max(1) for part in parts]
    return Predictions(torch.cat([part.indices for part in found]), torch.cat([part.values for part in found]))


def evaluate(
    model: nn.Module, examples: Examples, *, train: Examples | None = None, ranks: Ranks = ALONE
) -> GroupReport:
    """The model's accuracy by group.

    Args:
        model: the model.
        examples: the set to score.
        train: the training set, for the average under its group frequencies.
        ranks: the processes that share the work, all of which must ask.

    Returns:
        A report that answers questions.
    """
    expect_kind("model", model, nn.Module, "a torch module")
    expect_kind("examples", examples, Examples, EXAMPLES_WANTED)
    return GroupReport.of(predict(model, examples, ranks=ranks).predicted, examples, train=train)
