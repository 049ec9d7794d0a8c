"""Everything that a person needs to call an attribute spurious or healthy: numbers, images, and what the model saw.

Spec 3.2. For each finding a few images of the class with the attribute and without it are chosen at random, right and
wrong ones as they come, with the explanation map of what the model says. Where boxes are known, the word whose box the
map covers best is credited as what the model looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.multimodal.audit.attributes import Attributes
from holdfast.multimodal.audit.detection import Finding, Order, rank_attributes
from holdfast.multimodal.audit.detectors import THRESHOLD, Detections, credited_words
from holdfast.multimodal.audit.explanations import class_maps
from holdfast.multimodal.audit.task_detections import TaskDetections
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.method.classifier import PromptClassifier
from holdfast.multimodal.tasks.task import ClipTask
from holdfast.streams import numpy_stream
from holdfast.training.evaluation.evaluation import Predictions, predict

_CREDITED = 60  # images of a class whose maps are compared with boxes


@dataclass(frozen=True, eq=False)
class Sample:
    """Images of a class, with the attribute of a finding and without it, by their positions."""

    present: tuple[int, ...]
    absent: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was found in a part of a task.

    Attributes:
        part: of which part it is.
        findings: by discrepancy, the largest first.
        samples: images for each finding.
        predictions: what the model says of every image.
        attributes: what every image shows.
        maps: explanation of what the model says, by position, for all images in samples.
        credits: by class, how often each word was what the model looked at, the most frequent first; empty where no
            boxes are known.
        credited: images of each class that these counts are of.
    """

    part: str
    findings: tuple[Finding, ...]
    samples: tuple[Sample, ...]
    predictions: Predictions
    attributes: Attributes
    maps: dict[int, Tensor]
    credits: dict[int, list[tuple[str, int]]]
    credited: dict[int, int]


def gather_evidence(
    model: TwoTowerModel,
    task: ClipTask,
    detections: TaskDetections,
    *,
    part: str = "train",
    threshold: float = THRESHOLD,
    min_support: int = 10,
    top: int = 5,
    order: Order = "delta",
    images: int = 6,
    explained: int = 10,
    seed: int = 0,
) -> Evidence:
    """Rank attributes and collect what a person should look at.

    Args:
        model: the one that is audited; left as it was.
        task: the images and their classes.
        detections: what they show.
        part: which part to look at.
        threshold: least score of a detection.
        min_support: images of a class that must show an attribute.
        top: attributes of a class that are kept.
        order: by what they are chosen within a class.
        images: how many to show with the attribute, and without.
        explained: findings that get images, the first ones.
        seed: decides which images.

    Returns:
        The evidence.
    """
    examples, classifier = task.part(part), PromptClassifier.of(model, task.wording)
    predictions = predict(classifier, examples)
    table = detections.attributes(part, examples, threshold)
    findings = rank_attributes(
        table, examples.labels.numpy(), predictions.predicted.numpy(), min_support=min_support, top=top, order=order
    )
    draw = numpy_stream(seed, "evidence")
    samples = []
    for one in findings[:explained]:
        of_class, shows = examples.labels.numpy() == one.label, table.column(one.word) == 1
        present, absent = (
            tuple(draw.permutation(np.flatnonzero(of_class & chosen))[:images].tolist()) for chosen in (shows, ~shows)
        )
        samples.append(Sample(present, absent))
    wanted = sorted({place for sample in samples for place in (*sample.present, *sample.absent)})
    maps = dict(zip(wanted, _maps(classifier, task, part, wanted, predictions.predicted), strict=True))
    credits, credited = _credits(
        classifier, task, part, detections=detections, predictions=predictions, threshold=threshold, draw=draw
    )
    return Evidence(part, tuple(findings), tuple(samples), predictions, table, maps, credits, credited)


def kindred_words(words: Sequence[str], class_names: Sequence[str]) -> list[str]:
    """Words of a vocabulary that share a part with the name of a class, such as "bottle" with "water bottle".

    They may be synonyms, which nobody removed: a model that leans on them need not be wrong.
    """
    parts = {part for name in class_names for part in name.lower().split()}
    return [word for word in words if parts & set(word.lower().split())]


def _maps(
    classifier: PromptClassifier, task: ClipTask, part: str, places: Sequence[int], predicted: Tensor
) -> list[Tensor]:
    """The map of the predicted class of each image."""
    of_predicted = []
    for rows in torch.split(torch.tensor(places, dtype=torch.int64), 32):
        if len(rows):
            images = task.part(part).inputs.gather(rows)
            assert isinstance(images, Tensor)
            maps = class_maps(classifier, images)
            of_predicted += list(maps[torch.arange(len(rows)), predicted[rows]])
    return of_predicted


def _credits(
    classifier: PromptClassifier,
    task: ClipTask,
    part: str,
    *,
    detections: TaskDetections,
    predictions: Predictions,
    threshold: float,
    draw: np.random.Generator,
) -> tuple[dict[int, list[tuple[str, int]]], dict[int, int]]:
    if not detections.has_boxes:
        return {}, {}
    credits, sizes = {}, {}
    for label in range(task.part(part).n_classes):
        members = np.flatnonzero(task.part(part).labels.numpy() == label)
        places = sorted(draw.permutation(members)[:_CREDITED].tolist())
        maps = _maps(classifier, task, part, places, predictions.predicted)
        if maps:
            boxes = _boxes_of(detections.detections[part], places, threshold)
            words = credited_words(boxes, torch.stack(maps)).tolist()
            credits[label] = Counter(detections.words[word] for word in words if word >= 0).most_common()
            sizes[label] = len(places)
    return credits, sizes


def _boxes_of(detections: Detections, places: Sequence[int], threshold: float) -> Detections:
    """The boxes of some images, which are numbered anew."""
    number = torch.full((int(detections.images.max()) + 1 if len(detections.images) else 1,), -1)
    known = [place for place in places if place < len(number)]
    number[torch.tensor(known, dtype=torch.int64)] = torch.arange(len(places))[: len(known)]
    certain = (number[detections.images] >= 0) & (detections.scores >= threshold)
    return Detections(
        number[detections.images[certain]],
        detections.words[certain],
        detections.scores[certain],
        detections.boxes[certain],
    )
