"""Tiny towers, a tiny task and embeddings for tests of the multimodal room."""

import copy
from functools import lru_cache

import torch
import torch.nn.functional as F

from holdfast.multimodal import PromptClassifier, SmallTwoTowerModel, Wording, WordTokenizer
from holdfast.multimodal.tasks.prompts import ensemble
from holdfast.multimodal.tasks.shapes.images import CAPTIONS, SHAPE_WORDING, shape_task

WORDS = WordTokenizer.of([*CAPTIONS, "disc square sand sea shape on"], 12)
COUNTS = {"train": (24, 6, 4, 16), "validation": (6, 6, 6, 6), "test": (8, 8, 8, 8)}
TWO_TEMPLATES = Wording(
    SHAPE_WORDING.class_names, SHAPE_WORDING.spurious_words, SHAPE_WORDING.attribute_phrases, templates=CAPTIONS[:2]
)


def small_tower(kind="conv", seed=0, size=24):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tower = SmallTwoTowerModel(WORDS, kind, image_size=size, width=16)
        for parameter in tower.text_tower.words.parameters():
            torch.nn.init.normal_(parameter)
    return tower.eval()


def leaning_tower():
    """A tower that takes the ground for the shape: its image projection was fitted to the backgrounds."""
    return copy.deepcopy(_leaning_tower())


@lru_cache(maxsize=1)
def _leaning_tower():
    tower = small_tower()
    train = tiny_task(tower).splits.train
    images, _ = train.gather(torch.arange(len(train)))
    with torch.no_grad():
        classes = ensemble(PromptClassifier.of(tower, TWO_TEMPLATES).prompts("classes"))
        apart = (classes - classes.mean(0))[train.attributes]
        tower.from_image.weight.copy_(torch.linalg.lstsq(tower.image_features(images), apart).solution.T)
    return tower


def tiny_task(tower, counts=None):
    return shape_task(tower.preprocessing, counts=counts or COUNTS)


def units(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=-1)
