"""How a model fares on every group of a set."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.ranks import ALONE, Ranks


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
    """The model's predictions in evaluation mode, shared out over processes; the model is left as it was."""
    outputs = ModelOutputs(model, examples, batch_size=batch_size, ranks=ranks)
    confidence, predicted = outputs.probabilities().max(1)
    return Predictions(predicted, confidence)


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
    return GroupReport.of(predict(model, examples, ranks=ranks).predicted, examples, train=train)
