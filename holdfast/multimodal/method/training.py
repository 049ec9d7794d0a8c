"""Fine-tuning of a two-tower model: what is frozen is frozen, what can be computed once is, and the rest is `fit`.

Spec 4.4 and 4.5. Any method of holdfast can be given: `SpuriousAware`, plain training (ERM on zero-shot logits), or one
from another room, such as group DRO. Draws, choice of the epoch by worst group, resumable runs and progress events are
those of `holdfast.training.fit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from holdfast.data.examples import Splits
from holdfast.errors import ConfigError
from holdfast.models.devices import find_device
from holdfast.multimodal.backends.base import MAX_SCALE, Trained, TwoTowerModel
from holdfast.multimodal.method.cache import cache_features
from holdfast.multimodal.method.classifier import PromptClassifier
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.events import Listener
from holdfast.training.fitting import FitResult, fit
from holdfast.training.method import Method
from holdfast.training.objective import Objective
from holdfast.training.policy import Policy
from holdfast.training.run import Run
from holdfast.training.settings import Training

#: The commands of the authors' release, by image tower: 300 epochs of SGD at a constant rate. The text has learning
#: rate and weight decay the other way round; try both.
PUBLISHED: dict[str, Training] = {
    "RN50": Training(epochs=300, batch_size=128, learning_rate=1e-4, weight_decay=1e-5),
    "ViT-L-14-336": Training(epochs=300, batch_size=32, learning_rate=1e-4, weight_decay=1e-5),
}


def fine_tune(
    model: TwoTowerModel,
    splits: Splits,
    wording: Wording,
    method: Method | Policy | Objective | None = None,
    settings: Training | None = None,
    *,
    trained: Trained = "projection",
    scale: float | None = None,
    cache: bool = True,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
    reference: GroupReport | None = None,
) -> FitResult:
    """Train a two-tower model on a labelled data set.

    Args:
        model: trained in place; holds the best epoch's weights at the end.
        splits: preprocessed images with labels; groups where the method or the choice of the epoch needs them.
        wording: names of classes and attributes.
        method: what to train with; by default cross-entropy on the zero-shot logits, every image once per epoch.
        settings: how long and how fast; by default those of the release for a ResNet.
        trained: which parameters.
        scale: what cosines are multiplied by at the start; by default as the model has it. The release starts at
            1 / 0.07 instead of the checkpoint's.
        cache: compute the features of frozen encoders once. They are kept in memory: 4 bytes per feature and image,
            which for the maps of a ResNet-50 is 0.4 MB.
        run: a directory to save to and continue from.
        listeners: called with every event, for progress.
        reference: how plain training fares on the same test set, to judge the result by.

    Returns:
        The reports. ``result.model`` is the trained classifier; it takes features where `cache` replaced the images.

    Raises:
        ConfigError: if the mode is unknown, the scale is out of range, or the wording names another number of classes.
    """
    if len(wording.class_names) != splits.train.n_classes:
        raise ConfigError(
            f"the wording names {len(wording.class_names)} classes and the data has {splits.train.n_classes}; "
            "name each class once, in the order of the labels"
        )
    if scale is not None:
        if not 0 < scale <= MAX_SCALE:
            raise ConfigError(f"the scale is {scale}; give a number above 0, at most {MAX_SCALE:g}")
        with torch.no_grad():
            model.logit_scale.fill_(math.log(scale))
    settings = PUBLISHED["RN50"] if settings is None else settings
    model.to(find_device(settings.device))
    with _training_only(model, model.trained_parameters(trained)):
        classifier = PromptClassifier.of(model, wording)
        if cache:
            classifier, splits = cache_features(classifier, splits, trained)
        return fit(classifier, splits, method, settings, run=run, listeners=listeners, reference=reference)


@contextmanager
def _training_only(model: TwoTowerModel, trained: Sequence[nn.Parameter]) -> Iterator[None]:
    """Gradients for some parameters inside the block; every parameter gets its own setting back."""
    settings = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, wanted in settings:
            parameter.requires_grad_(wanted)
