"""Features of frozen encoders, computed once: training the projections then takes seconds per epoch.

What a mode of training leaves frozen before the projections is replaced by its output. A `CachedTwoTowerModel` shares
the projections and the scale with the model it came from, so training the one trains the other, to rounding as without
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.errors import ConfigError
from holdfast.multimodal.backends.base import ProjectedTwoTowerModel, Trained, TwoTowerModel
from holdfast.multimodal.method.classifier import PromptClassifier
from holdfast.training.model_outputs import evaluating


class CachedTwoTowerModel(ProjectedTwoTowerModel):
    """A model whose image encoder, and where wanted its text encoder, is the identity: it takes features.

    Args:
        model: what the features come from.
        texts: whether texts are features too; otherwise the whole model is kept for its text encoder.
    """

    def __init__(self, model: TwoTowerModel, *, texts: bool) -> None:
        super().__init__()
        self.preprocessing = model.preprocessing
        self.explained = model.explained
        self.from_image = model.image_projection
        self.from_text = model.text_projection
        self.log_scale = model.logit_scale
        self.source = None if texts else model

    def image_features(self, images: Tensor) -> Tensor:
        """What was given."""
        return images

    def text_features(self, tokens: Tensor) -> Tensor:
        """What was given, or what the source makes of it."""
        return tokens if self.source is None else self.source.text_features(tokens)

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Only where texts aren't features."""
        if self.source is None:
            raise ConfigError(
                "a model that takes the features of texts can't read new ones; ask the model it came from"
            )
        return self.source.tokenize(texts)

    def text_parameters_outside_blocks(self) -> list[nn.Parameter]:
        """The source's; none where texts are features."""
        return [] if self.source is None else self.source.text_parameters_outside_blocks()


def cache_features(
    classifier: PromptClassifier, splits: Splits, trained: Trained, *, batch_size: int = 256
) -> tuple[PromptClassifier, Splits]:
    """A classifier and data without the encoders that stay frozen.

    Args:
        classifier: the classifier on images and tokens.
        splits: the images.
        trained: what will be trained. Images are cached unless that is everything, texts unless their embeddings are
            trained.
        batch_size: images or prompts per pass.

    Returns:
        A classifier that shares every trained parameter with the given one, and the splits as it takes them. Both are
        the given ones where nothing is frozen.
    """
    if trained == "full":
        return classifier, splits
    model, prompts = classifier.tower, {family: classifier.inputs(family) for family in classifier.families}
    texts = trained != "release"
    if texts:
        prompts = {family: _prompt_features(model, inputs, batch_size) for family, inputs in prompts.items()}
    cached = PromptClassifier(CachedTwoTowerModel(model, texts=texts), prompts)
    return cached, encoded_splits(model, splits, model.image_features, batch_size)


def encoded_splits(
    model: TwoTowerModel, splits: Splits, encode: Callable[[Tensor], Tensor], batch_size: int = 256
) -> Splits:
    """`encoded_examples` of each part."""
    return replace(
        splits,
        train=encoded_examples(model, splits.train, encode, batch_size),
        validation=encoded_examples(model, splits.validation, encode, batch_size),
        test=encoded_examples(model, splits.test, encode, batch_size),
    )


def encoded_examples(
    model: TwoTowerModel, examples: Examples, encode: Callable[[Tensor], Tensor], batch_size: int = 256
) -> Examples:
    """The same examples with what `encode` makes of their images as inputs, float32 on the CPU.

    Args:
        model: run in evaluation mode and left as it was.
        examples: preprocessed images.
        encode: one of the model's methods, such as `image_features` or `encode_image`.
        batch_size: images per pass.

    Returns:
        A set that shares labels, groups and ids with `examples`.
    """
    features, device = [], model.logit_scale.device
    with evaluating(model):
        for positions in torch.split(torch.arange(len(examples)), batch_size):
            images = examples.inputs.gather(positions)
            assert isinstance(images, Tensor)
            features.append(encode(images.to(device)).to("cpu", torch.float32))
    return replace(examples, inputs=TensorInputs(torch.cat(features)))


def _prompt_features(model: TwoTowerModel, inputs: Tensor, batch_size: int) -> Tensor:
    with evaluating(model):
        features = [model.text_features(tokens) for tokens in torch.split(inputs.flatten(0, -2), batch_size)]
    return torch.cat(features).reshape(*inputs.shape[:-1], -1)
