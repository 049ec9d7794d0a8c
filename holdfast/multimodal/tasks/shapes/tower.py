"""A small two-tower model that has learned the shortcut of the rendered shapes; a minute or two of pre-training."""

from __future__ import annotations

from pathlib import Path

import torch

from holdfast.data.transforms import Normalise
from holdfast.multimodal.backends.cached_weights import Progress, cached_weights
from holdfast.multimodal.backends.pretraining import pretrain
from holdfast.multimodal.backends.small import SmallTwoTowerModel
from holdfast.multimodal.backends.words import WordTokenizer
from holdfast.multimodal.tasks.shapes.images import BACKGROUNDS, CAPTIONS, SHAPE_WORDING, SHAPES, corpus
from holdfast.streams import derive_seed

_LONGEST = 14

#: To be raised whenever the corpus, the network, its words or its training compute something else than before.
_RECIPE = 1


def shapes_tower(
    folder: Path, seed: int = 0, *, pairs: int = 6000, epochs: int = 12, progress: Progress | None = None
) -> SmallTwoTowerModel:
    """The model that experiments on a CPU start from, from its file or pre-trained now.

    Args:
        folder: where weights are stored.
        seed: of the corpus, the first weights and the order of the pairs.
        pairs: images with captions in the corpus.
        epochs: passes over it.
        progress: told about each epoch where it is trained.

    Returns:
        The model, in evaluation mode.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "shapes-tower"))
        model = SmallTwoTowerModel(WordTokenizer.of(_sentences(), _LONGEST)).eval()

    def make() -> None:
        known = corpus(pairs, seed)
        images = Normalise(model.preprocessing.mean, model.preprocessing.std)(known.scenes.pixels)
        pretrain(
            model,
            images,
            known.captions,
            epochs=epochs,
            seed=seed,
            progress=None if progress is None else lambda epoch, loss: progress(epoch + 1, epochs, loss),
        )

    cached_weights(model, folder, f"shapes-tower-s{seed}", make, version=_RECIPE, pairs=pairs, epochs=epochs)
    return model


def _sentences() -> list[str]:
    """Every word of the corpus and of the prompts of its task, whatever was drawn."""
    return [*CAPTIONS, " ".join([*SHAPES, *BACKGROUNDS, *SHAPE_WORDING.attribute_phrases, "on"])]
