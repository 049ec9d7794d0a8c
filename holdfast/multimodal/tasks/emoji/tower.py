"""EfficientNet-Lite0 and MiniLM joined by projections that learned a shortcut from captioned emoji.

The encoders stay as their packages have them. Their features are computed once, so training the projections takes
seconds; the features of the corpus take a minute or two.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from holdfast.data.transforms import Normalise
from holdfast.multimodal.backends.cached_weights import cached_weights
from holdfast.multimodal.backends.joined import JoinedTowers, load_joined_towers
from holdfast.multimodal.backends.pretraining import pretrain
from holdfast.multimodal.method.cache import CachedTwoTowerModel
from holdfast.multimodal.tasks.emoji.images import emoji_corpus
from holdfast.streams import derive_seed
from holdfast.training.model_outputs import evaluating

_AT_ONCE = 64

#: To be raised whenever the corpus, the joined towers or their training compute something else than before.
_RECIPE = 1


def emoji_tower(
    folder: Path,
    seed: int = 0,
    *,
    pairs: int = 2500,
    epochs: int = 8,
    correlation: float = 0.99,
    image_size: int = 128,
) -> JoinedTowers:
    """The joined towers after training their projections on captioned emoji, from their file or now.

    Args:
        folder: where projections are stored.
        seed: of the corpus, the first projections and the order of the pairs.
        pairs: images with captions.
        epochs: passes over them.
        correlation: how often the ground of the two kinds is the usual one.
        image_size: side of the images.

    Returns:
        The towers, in evaluation mode.
    """
    model = load_joined_towers(image_size, seed=derive_seed(seed, "emoji-tower"))
    cached = CachedTwoTowerModel(model, texts=True)

    def make() -> None:
        known = emoji_corpus(pairs, image_size, seed, correlation=correlation)
        images = encoded_images(model, known.scenes.pixels)
        pretrain(cached, images, encoded_texts(model, known.captions), epochs=epochs, seed=seed)

    cached_weights(
        cached,
        folder,
        f"emoji-tower-s{seed}",
        make,
        version=_RECIPE,
        pairs=pairs,
        epochs=epochs,
        correlation=correlation,
        image_size=image_size,
    )
    return model


def encoded_images(model: JoinedTowers, pixels: Tensor) -> Tensor:
    """Features of images given as bytes, (n, channels)."""
    normalise = Normalise(model.preprocessing.mean, model.preprocessing.std)
    with evaluating(model):
        return torch.cat([model.image_features(normalise(some)) for some in torch.split(pixels, _AT_ONCE)])


def encoded_texts(model: JoinedTowers, captions: tuple[str, ...]) -> Tensor:
    """Features of sentences; each different one is read once."""
    different = sorted(set(captions))
    with evaluating(model):
        tokens = torch.split(model.tokenize(different), _AT_ONCE)
        features = torch.cat([model.text_features(some) for some in tokens])
    place = {caption: at for at, caption in enumerate(different)}
    return features[torch.tensor([place[caption] for caption in captions])]
