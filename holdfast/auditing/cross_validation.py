"""Probabilities of every training example by a model that did not learn from it: cross-validation with a recipe.

The training set is cut into parts in which every class keeps its share; for each part a fresh model is trained plainly
on the others, without choosing an epoch, since the only data to choose by would be the part itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, HoldfastError
from holdfast.spurious.last_layer.folds import folds
from holdfast.streams import torch_stream
from holdfast.training.events import Listener
from holdfast.training.fitting import AUGMENTATIONS
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.plain import plain_epochs
from holdfast.training.settings import Training


def out_of_sample(
    new_model: Callable[[], nn.Module],
    train: Examples,
    settings: Training,
    *,
    parts: int = 5,
    listeners: Sequence[Listener] = (),
    head: str | None = None,
) -> Tensor:
    """Train on all parts but one, for each of them, and give the probabilities of that part.

    Args:
        new_model: makes a fresh model.
        train: the training set.
        settings: of every training.
        parts: how many; each training sees all but one of them.
        listeners: called with the events of every training.
        head: name of the model's head where it can't be found.

    Returns:
        Softmax outputs, float32 of shape (n, classes).

    Raises:
        ConfigError: if there are fewer than two parts, or more than examples.
        HoldfastError: if a training diverges.
    """
    if not 2 <= parts <= len(train):
        raise ConfigError(f"parts is {parts} for {len(train):,} examples; give at least 2 and at most as many")
    part = folds(train.labels, parts, torch_stream(settings.seed, "out-of-sample"))
    probabilities = torch.empty(len(train), train.n_classes)
    for number in range(parts):
        held, rest = ((part == number).nonzero().flatten(), (part != number).nonzero().flatten())
        model = new_model()
        augment = AUGMENTATIONS[settings.augment]
        for _ in plain_epochs(
            model, train.subset(rest), settings, settings.epochs, augment=augment, listeners=listeners
        ):
            pass
        outputs = ModelOutputs(model, train.subset(held), head=head).probabilities()
        if not bool(torch.isfinite(outputs).all()):
            raise HoldfastError(
                f"training without part {number + 1} of {parts} diverged, so nothing is known of that part; lower the "
                "learning rate"
            )
        probabilities[held] = outputs.cpu()[:, : train.n_classes]
    return probabilities
