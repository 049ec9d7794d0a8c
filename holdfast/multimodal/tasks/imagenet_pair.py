"""Two classes of ImageNet that CLIP confuses where a word is missing: pacifier or bottle, can opener or letter opener.

Spec 6.2. Nobody labelled the attribute: an image shows it if the detector sees the word. Of the training images of each
class 25 with and 25 without the attribute are validation; the official validation images are the test set, and their
boxes are ImageNet's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.readers.folder import lazy_splits
from holdfast.data.readers.image_tree import image_files
from holdfast.data.readers.tables import read_columns
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError
from holdfast.files import write_atomically
from holdfast.multimodal.audit.detectors import THRESHOLD, Detector, load_owl_vit
from holdfast.multimodal.audit.outlines import box_inputs
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.multimodal.tasks.task import ClipData, ClipTask
from holdfast.streams import numpy_stream

PairName = Literal["pacifier", "can-opener"]

_HELD_OUT = 25
_AT_ONCE = 64
_DETECTED_SIZE = 224


@dataclass(frozen=True)
class Pair:
    """Two classes and the word that one of them is recognised by.

    Attributes:
        classes: their names in prompts.
        synsets: their folders.
        word: the spurious word.
        neutral: stands for images without it, where a phrase is needed.
    """

    classes: tuple[str, str]
    synsets: tuple[str, str]
    word: str
    neutral: str

    @property
    def wording(self) -> Wording:
        """The task in words; the attribute's first value is its absence."""
        return Wording(self.classes, ("", self.word), (self.neutral, self.word), joined="{} with a {}")


PAIRS: dict[PairName, Pair] = {
    "pacifier": Pair(("baby pacifier", "water bottle"), ("n03825788", "n04557648"), "baby", "bottle"),
    "can-opener": Pair(("can opener", "letter opener"), ("n02951585", "n03658185"), "can", "opener"),
}


@dataclass(frozen=True)
class ImageNetPair(ClipData):
    """Two classes of ImageNet, with the attribute that a detector sees.

    Attributes:
        pair: which two.
        detector: OWL-ViT by name or folder; asked once, what it saw is kept beside the images.
        seed: decides which training images are held out for validation.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "imagenet-pair"
    summary = "baby pacifier or water bottle, can opener or letter opener, of ImageNet"
    files = (RemoteFile("imagenet/train"), RemoteFile("imagenet/val"), RemoteFile("imagenet/annotations/val"))
    by_hand = (
        "agree to the terms at https://image-net.org/download and unpack ILSVRC 2012 into imagenet/train and "
        "imagenet/val, each with a folder per synset, and the boxes of its validation images into "
        "imagenet/annotations/val"
    )
    tower = "open_clip:RN50:openai"
    recipe: ClassVar[Any] = {"epochs": 300, "batch_size": 128, "learning_rate": 1e-4, "weight_decay": 1e-5}

    pair: PairName = "pacifier"
    detector: str = "google/owlvit-base-patch32"
    seed: int = 0
    workers: int = 2

    def load(self, root: Path, preprocessing: Preprocessing) -> ClipTask:
        """List the images, and look for the word in them where nobody has yet."""
        pair = PAIRS[self.pair]
        folders = [
            self.locate(root, f"imagenet/{part}/{synset}") for part in ("train", "val") for synset in pair.synsets
        ]
        images = [image_files(folder) for folder in folders]
        paths = [path for files in images for path in files]
        labels = np.repeat(np.array([0, 1, 0, 1]), [len(files) for files in images])
        scores = root / "imagenet" / f"seen-{pair.word}-{'-'.join(pair.synsets)}.csv"
        if not scores.exists():
            write_detection_scores(scores, paths, scores_of(load_owl_vit(self.detector), paths, pair.word))
        shown = (read_detection_scores(scores, paths) >= THRESHOLD).astype(np.int64)
        is_test = np.repeat(np.array([False, False, True, True]), [len(files) for files in images])
        codes = np.where(is_test, 2, 0)
        codes[held_out(labels, shown, ~is_test, self.seed)] = 1
        splits = lazy_splits(
            self.name,
            paths,
            preprocessing,
            labels=labels,
            attributes=shown,
            codes=codes,
            class_names=pair.classes,
            attribute_names=(f"no {pair.word}", pair.word),
            workers=self.workers,
        )
        boxes = self.locate(root, "imagenet/annotations/val")
        outlined = [boxes / f"{paths[at].stem}.xml" for at in np.flatnonzero(is_test)]
        return ClipTask(splits, pair.wording, {"test": box_inputs(outlined, preprocessing, self.workers)})


def held_out(
    labels: NDArray[np.int64], shown: NDArray[np.int64], available: NDArray[np.bool_], seed: int
) -> NDArray[np.int64]:
    """Which images are for validation: 25 of each class with the attribute and 25 without, or half where there are few.

    Args:
        labels: class of each image, (n,).
        shown: whether it shows the attribute, (n,).
        available: which images may be taken, (n,).
        seed: decides which are.

    Returns:
        Positions, int64.
    """
    draw, taken = numpy_stream(seed, "held-out"), []
    for label in (0, 1):
        for value in (0, 1):
            members = np.flatnonzero(available & (labels == label) & (shown == value))
            taken.append(draw.permutation(members)[: min(_HELD_OUT, len(members) // 2)])
    return np.concatenate(taken)


def scores_of(detector: Detector, paths: list[Path], word: str) -> NDArray[np.float64]:
    """The best score of a word in each image, 0 where no box reaches the detector's threshold."""
    preprocessing = Preprocessing(_DETECTED_SIZE)
    best = np.zeros(len(paths))
    for start in range(0, len(paths), _AT_ONCE):
        chosen = paths[start : start + _AT_ONCE]
        images = preprocessing.pictures(preprocessing.inputs(chosen).gather(torch.arange(len(chosen))))
        detections = detector.detect(images, [word])
        np.maximum.at(best, detections.images.numpy() + start, detections.scores.double().numpy())
    return best


def write_detection_scores(file: Path, paths: list[Path], scores: NDArray[np.float64]) -> None:
    """Keep what the detector saw, a line per image."""
    lines = [f"{path.name},{score:.6f}" for path, score in zip(paths, scores.tolist(), strict=True)]
    write_atomically(file, "\n".join(["image,score", *lines, ""]).encode())


def read_detection_scores(file: Path, paths: list[Path]) -> NDArray[np.float64]:
    """What a detector saw earlier, in the order of `paths`.

    Raises:
        DataError: if an image isn't among those it looked at.
    """
    table = read_columns(file, ["image", "score"])
    known = dict(zip(table["image"], table["score"].astype(float), strict=True))
    missing = [path.name for path in paths if path.name not in known]
    if missing:
        raise DataError(f"{file} doesn't know the image {missing[0]}; delete the file to look at all images again")
    return np.array([known[path.name] for path in paths])
