"""Open-vocabulary detectors: boxes for any word, and the table of which image shows what.

Any object with a `detect` method will do. OWL-ViT comes from the extra `multimodal` and needs weights that can be
fetched or are in a folder. Images must already be the squares that explanations refer to, so that boxes and maps share
one frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.data.readers.texts import load_tokenizer
from holdfast.errors import DataError, MissingDependencyError
from holdfast.models.networks.pretrained import load_pretrained
from holdfast.multimodal.audit.attributes import Attributes
from holdfast.multimodal.audit.metrics import filled_boxes
from holdfast.multimodal.backends.preprocessing import Preprocessing

#: Scores from which the paper counts a word as seen.
THRESHOLD = 0.1


@dataclass(frozen=True, eq=False)
class Detections:
    """Boxes with their words, of a set of images.

    Attributes:
        images: number of the image of each box, int64 of shape (boxes,).
        words: number of its word, int64 of shape (boxes,).
        scores: how sure the detector is, from 0 to 1, (boxes,).
        boxes: left, top, right, bottom as fractions of the image, (boxes, 4).
    """

    images: Tensor
    words: Tensor
    scores: Tensor
    boxes: Tensor

    def attributes(self, words: Sequence[str], n_images: int, threshold: float = THRESHOLD) -> Attributes:
        """Which image shows what: any box of the word with at least this score.

        Args:
            words: the words that were looked for.
            n_images: how many images the detector was run on.
            threshold: least score of a box.

        Returns:
            The table.
        """
        certain = self.scores >= threshold
        present = torch.zeros(n_images, len(words), dtype=torch.bool)
        present[self.images[certain], self.words[certain]] = True
        return Attributes(tuple(words), present.numpy())


class Detector(Protocol):
    """Anything that finds words in images."""

    def detect(self, images: Tensor, words: Sequence[str]) -> Detections:
        """Boxes of every word in every image (n, 3, side, side), floats from 0 to 1."""
        ...


class OwlVit:
    """OWL-ViT: CLIP's towers with a box and a score for every patch and every text.

    A box is scored for each word by itself, so the result doesn't depend on which words are asked for together; the
    library's own post-processing gives a box to its best word alone.

    Args:
        model: a `transformers.OwlViTForObjectDetection`.
        tokenizer: its tokenizer.
        threshold: boxes below this score are dropped.
        query: sentence that a word is put into.
        batch_size: images per pass.
        words_at_once: texts per pass.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        threshold: float = THRESHOLD,
        query: str = "a photo of a {}",
        batch_size: int = 16,
        words_at_once: int = 512,
    ) -> None:
        self.model = model.float().eval()
        self.tokenizer = tokenizer
        self.threshold = threshold
        self.query = query
        self.batch_size = batch_size
        self.words_at_once = words_at_once
        self.preprocessing = Preprocessing(model.config.vision_config.image_size)
        self._known: tuple[tuple[str, ...], Tensor] | None = None

    def detect(self, images: Tensor, words: Sequence[str]) -> Detections:
        """Boxes of every word in every image.

        Args:
            images: squares (n, 3, side, side), floats from 0 to 1.
            words: what to look for; they are read again only where they differ from those of the call before.

        Returns:
            The boxes from the threshold up.
        """
        if not len(images) or not words:
            raise DataError(f"there are {len(images)} images and {len(words)} words; give at least one of each")
        batches: list[tuple[Tensor, ...]] = []
        with torch.no_grad():
            queries = self._queries(tuple(words))
            for start in range(0, len(images), self.batch_size):
                scores, boxes = self._scores_and_boxes(images[start : start + self.batch_size], queries)
                image, patch, word = (scores >= self.threshold).nonzero(as_tuple=True)
                batches.append((image + start, word, scores[image, patch, word], boxes[image, patch]))
        return Detections(*(torch.cat(parts) for parts in zip(*batches, strict=True)))

    def _queries(self, words: tuple[str, ...]) -> Tensor:
        if self._known is None or self._known[0] != words:
            chunks = [words[at : at + self.words_at_once] for at in range(0, len(words), self.words_at_once)]
            self._known = (words, torch.cat([self._read(chunk) for chunk in chunks]))
        return self._known[1]

    def _read(self, words: Sequence[str]) -> Tensor:
        length = self.model.config.text_config.max_position_embeddings
        batch = self.tokenizer(
            [self.query.replace("{}", word) for word in words],
            padding="max_length",
            truncation=True,
            max_length=length,
            return_tensors="pt",
        )
        read = self.model.owlvit.get_text_features(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        return read if isinstance(read, Tensor) else read.pooler_output

    def _scores_and_boxes(self, images: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (n, patches, words) and boxes (n, patches, 4) inside the image."""
        maps = self.model.image_embedder(self.preprocessing.batch(images).to(self.model.device))[0]
        features = maps.flatten(1, 2)
        logits = self.model.class_predictor(features, queries.expand(len(images), -1, -1))[0]
        centre, size = self.model.box_predictor(features, maps).split(2, -1)
        corners = torch.cat([centre - size / 2, centre + size / 2], -1).clamp(0, 1)
        return logits.sigmoid().cpu(), corners.cpu()


def load_owl_vit(source: Path | str = "google/owlvit-base-patch32", *, threshold: float = THRESHOLD) -> OwlVit:
    """OWL-ViT by name or from a folder; safetensors only.

    Args:
        source: a name on the hub, or a folder with ``config.json``, ``model.safetensors`` and the tokenizer's files.
        threshold: boxes below this score are dropped.

    Returns:
        The detector.

    Raises:
        MissingDependencyError: if transformers isn't installed.
        ConfigError: if there is no such source, or no network to fetch it.
    """
    try:
        from transformers import OwlViTForObjectDetection  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError("OWL-ViT needs transformers; pip install 'holdfast[multimodal]'") from error
    return OwlVit(load_pretrained(OwlViTForObjectDetection, source), load_tokenizer(str(source)), threshold=threshold)


def credited_words(detections: Detections, maps: Tensor) -> Tensor:
    """What the model looks at in each image: the word of the box that the explanation map covers best.

    A box scores ``sum(box x map) / (sum box + sum map)``.

    Args:
        detections: boxes in the images' frame.
        maps: one map per image, from 0 to 1, (images, height, width).

    Returns:
        Number of the word, int64 of shape (images,); -1 where nothing was detected or no box is touched.
    """
    best, words = np.zeros(len(maps)), torch.full((len(maps),), -1)
    filled = filled_boxes(detections.boxes, (maps.shape[1], maps.shape[2])).to(maps.dtype)
    covered = maps[detections.images]
    overlap = (filled * covered).sum((1, 2)) / (filled.sum((1, 2)) + covered.sum((1, 2))).clamp_min(1e-12)
    for image, word, score in zip(detections.images.tolist(), detections.words.tolist(), overlap.tolist(), strict=True):
        if score > best[image]:
            best[image], words[image] = score, word
    return words
