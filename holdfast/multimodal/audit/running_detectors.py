"""Ask a detector what all images of a task show, with the words of a list or of Visual Genome."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.multimodal.audit.attributes import vocabulary
from holdfast.multimodal.audit.detectors import Detections, Detector
from holdfast.multimodal.audit.task_detections import TaskDetections
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.task import PARTS, ClipTask

#: Where Visual Genome's object names are looked for below the data root, and its attributes' beside them.
VISUAL_GENOME = ("visual_genome/object_synsets.json", "visual_genome/attribute_synsets.json")

_AT_ONCE = 64


def read_vocabulary(path: Path | None, root: Path, class_names: Iterable[str]) -> tuple[str, ...]:
    """Words to look for.

    Args:
        path: a text file with a word per line, or a JSON file with a list of words or with synsets by name, as Visual
            Genome has them; by default Visual Genome's files below the data root.
        root: the data root.
        class_names: names of the classes, which are left out.

    Returns:
        The words.

    Raises:
        ConfigError: if no file is given and Visual Genome isn't there.
        DataError: if a file can't be read or holds no word.
    """
    files = [path] if path is not None else [root / name for name in VISUAL_GENOME if (root / name).exists()]
    if not files:
        raise ConfigError(
            f"there is no vocabulary: {root / VISUAL_GENOME[0]} isn't there; fetch Visual Genome's object synsets, or "
            "give --vocabulary a file with a word per line"
        )
    words = vocabulary([word for file in files for word in _words(file)], class_names)
    if not words:
        raise DataError(f"{files[0]} holds no word besides the names of classes; give more words")
    return words


def run_detector(
    task: ClipTask,
    preprocessing: Preprocessing,
    detector: Detector,
    words: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> TaskDetections:
    """What a detector sees in every image of all parts.

    Args:
        task: the images.
        preprocessing: theirs, undone before the detector sees them; boxes refer to their middle square.
        detector: finds words.
        words: what to look for.
        progress: told how many images are done, and of how many.

    Returns:
        The sightings.
    """
    total, done = sum(len(task.part(part)) for part in PARTS), 0
    detections = {}
    for part in PARTS:
        pieces = []
        for rows in torch.split(torch.arange(len(task.part(part))), _AT_ONCE):
            images = task.part(part).inputs.gather(rows)
            assert isinstance(images, Tensor)
            batch = detector.detect(preprocessing.pictures(images), words)
            pieces.append((rows[batch.images], batch.words, batch.scores, batch.boxes))
            done += len(rows)
            if progress is not None:
                progress(done, total)
        detections[part] = Detections(*(torch.cat(tensors) for tensors in zip(*pieces, strict=True)))
    return TaskDetections(tuple(words), detections, has_boxes=True)


def _words(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
        if path.suffix != ".json":
            return text.splitlines()
        loaded = json.loads(text)
    except (OSError, ValueError) as error:
        raise DataError(f"the vocabulary {path} can't be read ({error}); give a word per line, or JSON") from error
    words = list(loaded.values()) if isinstance(loaded, dict) else loaded
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"the vocabulary {path} must hold a list of words, or synsets by name")
    return words
