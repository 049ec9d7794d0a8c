"""GradCAM of a two-tower model: which places of an image speak for a class's prompts.

Spec 6.4: the logit is the scaled cosine of the image with the class's direction, the layer the last residual stage of a
ResNet or the input norm of the last block of a transformer, whose patch tokens are laid out as maps. The maps come from
captum through `holdfast.models.saliency`; here they are shifted and scaled from 0 to 1 per image, as AIoU needs them.
The release scales before it resizes, so its maps reach a little less than 1; AIoU, a ratio, hardly sees that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.saliency import heat_maps
from holdfast.multimodal.backends.base import ExplainedLayer
from holdfast.multimodal.method.cache import CachedTwoTowerModel
from holdfast.multimodal.method.classifier import PromptClassifier


class _Watched(nn.Module):
    """A classifier whose patch tokens pass through `probe` as maps, so that GradCAM finds places in them."""

    def __init__(self, classifier: PromptClassifier) -> None:
        super().__init__()
        self.classifier = classifier
        self.probe = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(images)
        return logits


def class_maps(classifier: PromptClassifier, images: Tensor, classes: Sequence[int] | None = None) -> Tensor:
    """Where the model sees evidence for each class.

    Args:
        classifier: on images, not on cached features; left as it was.
        images: preprocessed, (n, 3, height, width).
        classes: which classes to explain; all by default.

    Returns:
        float32 of shape (n, classes, height, width) on the CPU, each map from 0 to 1. A map without any contrast is 0
        everywhere: nothing speaks for the class, or everything alike.

    Raises:
        MissingDependencyError: if captum isn't installed.
        ConfigError: if the classifier takes features.
    """
    if isinstance(classifier.tower, CachedTwoTowerModel):
        raise ConfigError(
            "features of an image have no places; explain PromptClassifier.of(model, wording) with the model they came "
            "from, which was trained with it"
        )
    layer = classifier.tower.explained
    wanted = range(len(classifier.inputs("classes"))) if classes is None else classes
    watched = _Watched(classifier)
    name = f"classifier.tower.{layer.name}" if layer.grid is None else "probe"
    with _tokens_as_maps(classifier.tower.get_submodule(layer.name), layer, watched.probe):
        maps = [
            _scaled(heat_maps(watched, images, torch.full((len(images),), c, dtype=torch.int64), name)) for c in wanted
        ]
    return torch.stack(maps, 1)


@contextmanager
def _tokens_as_maps(module: nn.Module, layer: ExplainedLayer, probe: nn.Module) -> Iterator[None]:
    """Send the patch tokens that `module` gives through `probe` as maps; nothing for a layer that gives maps itself."""
    if layer.grid is None:
        yield
        return
    grid = layer.grid

    def detour(_: nn.Module, __: Any, tokens: Tensor) -> Tensor:
        in_order = tokens if layer.batch_first else tokens.transpose(0, 1)
        maps = probe(in_order[:, 1:].transpose(1, 2).reshape(len(in_order), -1, *grid))
        joined = torch.cat([in_order[:, :1], maps.flatten(2).transpose(1, 2)], 1)
        return joined if layer.batch_first else joined.transpose(0, 1)

    hook = module.register_forward_hook(detour)
    try:
        yield
    finally:
        hook.remove()


def _scaled(maps: Tensor) -> Tensor:
    """From 0 to 1 per image."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp_min(torch.finfo(maps.dtype).tiny)
